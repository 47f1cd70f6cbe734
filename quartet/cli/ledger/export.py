"""`quartet ledger export`: write a run's trajectories to a file."""

import json
from contextlib import closing
from pathlib import Path
from shlex import quote

import click

from quartet.cli.parameters import JSON, RUN
from quartet.terminal.say import say


@click.command(short_help="Write a run's trajectories to a file.")
@RUN
@click.option(
    "--format",
    "kind",
    required=True,
    metavar="[jsonl|parquet|chat|revisions]",
    help="Complete records, a table, conversations for `quartet sft`, or conversations that leave a wrong branch.",
)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path, dir_okay=False), help="File to write.")
@click.option("--family", "families", multiple=True, help="Export only this task family; may be repeated.")
@click.option(
    "--success/--any-outcome",
    "successes",
    default=None,
    help="Export only successes (the default for chat), or all outcomes.",
)
@click.option("--purpose", type=click.Choice(["train", "eval"]), default="train", show_default=True)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of trajectories to write, the oldest first.")
@click.option("--screenshots", is_flag=True, help="Include screenshots (jsonl and parquet only).")
@JSON
def export(
    run: Path,
    kind: str,
    output: Path,
    families: tuple[str, ...],
    successes: bool | None,
    purpose: str,
    limit: int | None,
    screenshots: bool,
    as_json: bool,
) -> None:
    """Write the trajectories of RUN to one file: the last attempt of every rollout. RUN may be live."""
    from msgspec import to_builtins

    from quartet.exchange.export import export as export_to
    from quartet.exchange.stored import Selection
    from quartet.files.disk import usable_output
    from quartet.ledger import Ledger
    from quartet.recipe.file import read_resolved
    from quartet.report.show import counted, size
    from quartet.terminal.progress import Watched
    from quartet.types import Purpose

    selection = Selection(
        purpose=Purpose(purpose),
        families=families,
        successes_only=kind == "chat" if successes is None else successes,
        screenshots=screenshots,
    )
    recipe = read_resolved(run / "config.toml")
    with (
        closing(Ledger.view(run)) as ledger,
        Watched("trajectories read", quiet=as_json) as watched,
        usable_output(output),
    ):
        summary = export_to(ledger, recipe, kind, output, selection, limit, watched)
    if as_json:
        say(json.dumps(to_builtins(summary)))
        return
    read = (
        f"{counted(summary.trajectories, 'trajectory', 'trajectories')}, {counted(summary.turns, 'turn')}, "
        f"{counted(summary.response_tokens, 'response token')}"
    )
    if summary.revisions is None:
        say(f"{read}, {size(summary.bytes)} in {output}")
    else:
        revisions = counted(summary.revisions, "revision trajectory", "revision trajectories")
        say(f"read {read}\nwrote {revisions}, {size(summary.bytes)} in {output}")
    if summary.revisions == 0:
        say(
            "note: no selected group has a failure and a success that first differ in a response", fg="yellow", err=True
        )
    if summary.damaged:
        damaged = counted(summary.damaged, "damaged trajectory", "damaged trajectories")
        say(f"left out {damaged}, see `quartet ledger check {quote(str(run))}`", fg="yellow")
