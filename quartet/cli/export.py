"""`quartet export`: write a run's policy as a folder that other programs load."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say


@click.command(name="export")
@RUN
@click.argument("output", type=click.Path(path_type=Path, file_okay=False))
@click.option("--policy", "which", type=click.Choice(["best", "latest"]), default="latest", help="Policy of the run.")
@click.option(
    "--form",
    type=click.Choice(["merged", "adapter"]),
    default="merged",
    help="Whole weights, or only the adapter of a run with LoRA.",
)
@JSON
def command(run: Path, output: Path, which: str, form: str, as_json: bool) -> None:
    """Write a policy of RUN to the folder OUTPUT, in Hugging Face format or, as an adapter, in that of `peft`."""
    from contextlib import closing

    from quartet.ledger import Ledger
    from quartet.ledger.held_policy import held_policy
    from quartet.policy.export import export_adapter, export_whole
    from quartet.recipe.file import read_resolved

    recipe = read_resolved(run / "config.toml")
    write = export_adapter if form == "adapter" else export_whole
    with closing(Ledger.view(run)) as ledger, held_policy(ledger, which) as policy:
        write(run / policy.path, output, trust_remote_code=recipe.model.trust_remote_code)
    if as_json:
        say(json.dumps({"run": str(run), "version": policy.version, "form": form, "output": str(output)}))
    else:
        say(f"version {policy.version} of {run} in {output}")
