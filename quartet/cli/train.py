"""`quartet train`: the whole run, or with `--dry-run` its arithmetic."""

import json
from pathlib import Path

import click

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.recipe_file import load_recipe


@click.command(name="train")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one knob; may be repeated.")
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of the run; runs/NAME by default.")
@click.option("--resume", is_flag=True, help="Go on where the run stopped.")
@click.option("--fresh", is_flag=True, help="Delete a run that is there and start over.")
@click.option("--dry-run", is_flag=True, help="Validate everything, print the batch arithmetic, load nothing heavy.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, and nothing else.")
def command(
    recipe: Path,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    resume: bool,
    fresh: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train the policy of RECIPE (a TOML file)."""
    resolved = load_recipe(recipe, list(overrides))
    run_dir = run_dir or Path("runs") / resolved.name
    if dry_run:
        _show_plan(resolved, as_json)
        _note_run_dir(resolved, run_dir, resume, fresh)
        return
    from quartet.runtime.run import run_recipe

    summary = run_recipe(resolved, run_dir, resume=resume, fresh=fresh, quiet=as_json)
    if as_json:
        click.echo(json.dumps(summary))
        return
    from rich.console import Console

    from quartet.observe.plot import draw_run
    from quartet.observe.report import summary_table

    console = Console()
    console.print(summary_table(summary))
    console.print(f"summary  {run_dir / 'summary.json'}\npicture  {draw_run(run_dir, summary)}")


def _note_run_dir(recipe: Recipe, run_dir: Path, resume: bool, fresh: bool) -> None:
    """Say what the same command would end with if it were no dry run."""
    from quartet.runtime.run_dir import check_run_dir

    try:
        check_run_dir(recipe, run_dir, resume=resume, fresh=fresh)
    except ConfigError as error:
        click.secho(f"note: without --dry-run this would be refused: {error}", fg="yellow", err=True)


def _show_plan(recipe: Recipe, as_json: bool) -> None:
    from quartet.runtime.plan import check_recipe, plan

    check_recipe(recipe)
    numbers = plan(recipe)
    if as_json:
        click.echo(json.dumps(numbers))
        return
    train, control = recipe.train, recipe.control
    at_most = "" if control.allocator == "fixed" else "at most "
    click.echo(
        f"{at_most}{train.groups_per_batch} groups × {control.rollouts_per_group} rollouts = "
        f"{numbers['rollouts_per_train_step']} trajectories per train step\n"
        f"{numbers['optimizer_steps_per_train_step']} optimizer steps per train step "
        f"({train.minibatches} minibatches × {train.epochs} epochs), "
        f"at most {train.max_tokens_per_microbatch} tokens per microbatch\n"
        f"staleness: no fresh token older than {recipe.admission.max_lag} versions is trained; at most "
        f"{numbers['max_groups_ahead']} groups = {numbers['max_rollouts_ahead']} rollouts ahead of the trainer\n"
        f"sampler {control.sampler}, allocator {control.allocator}, horizon {' + '.join(control.horizon)}, "
        f"filters {' + '.join(recipe.filter.names) or 'none'}, replay {recipe.replay.name}\n"
        f"{numbers['families']} task families, {numbers['train_tasks']} training tasks, "
        f"{numbers['evaluation_episodes']} held-out episodes per evaluation"
    )
