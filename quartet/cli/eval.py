"""`quartet eval`: success of a run's policy, or of any policy folder, on held-out tasks."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, SET, RecipeName


@click.command(name="eval")
@click.argument("run_or_policy", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--recipe", type=RecipeName(), help="Needed for a policy folder: the tasks to evaluate on.")
@click.option(
    "--policy", "which", type=click.Choice(["best", "latest"]), default="latest", help="Which policy of a run."
)
@SET
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Folder of the evaluation; inside the run by default."
)
@JSON
def command(
    run_or_policy: Path,
    recipe: Path | None,
    which: str,
    overrides: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> None:
    """Evaluate RUN_OR_POLICY greedily and at the training temperature."""
    from quartet.data.database import has_database
    from quartet.errors import ConfigError
    from quartet.recipe_file import load_recipe
    from quartet.runtime.run import evaluate_policy

    if has_database(run_or_policy):
        policy = _policy_of_run(run_or_policy, which)
        recipe = recipe or run_or_policy / "config.toml"
        output = output or run_or_policy / "evaluations" / policy.name
    elif recipe is None:
        raise ConfigError(
            f"{run_or_policy} is no run: as a policy it needs tasks",
            "add --recipe: a file or a name of `quartet recipes`",
        )
    else:
        policy = run_or_policy
        output = output or Path("runs") / f"eval-{policy.name}"
    summary = evaluate_policy(load_recipe(recipe, list(overrides)), policy, output, quiet=as_json)
    if as_json:
        click.echo(json.dumps(summary))
        return
    for family, rates in summary["per_task"].items():
        click.echo(
            f"{family:28} greedy {100 * (rates['greedy'] or 0):3.0f} %  sampled {100 * (rates['sampled'] or 0):3.0f} %"
        )
    click.echo(
        f"{'all':28} greedy {100 * (summary['success_greedy'] or 0):3.0f} %  "
        f"sampled {100 * (summary['success_sampled'] or 0):3.0f} %   ({output / 'summary.json'})"
    )


def _policy_of_run(run: Path, which: str) -> Path:
    from quartet.data.ledger import Ledger

    ledger = Ledger.view(run)
    try:
        best = ledger.best_policy() if which == "best" else None
        return Path((best or ledger.latest_policy()).path)
    finally:
        ledger.close()
