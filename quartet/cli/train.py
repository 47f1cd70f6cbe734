"""`quartet train`: run a recipe, or with `--dry-run` print its batch sizes and limits."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from quartet.cli.dry_run import show_plan
from quartet.cli.lacks import note_lacks
from quartet.cli.parameters import JSON, RECIPE, SET
from quartet.config import Recipe
from quartet.errors import CONTINUE, ConfigError, QuartetError
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say

if TYPE_CHECKING:
    from quartet.report.summary import Summary
    from quartet.runtime.dashboard import View


@click.command(name="train")
@RECIPE
@SET
@click.option("--run-dir", type=click.Path(path_type=Path), help="Folder of the run; runs/NAME by default.")
@click.option("--resume", is_flag=True, help="Continue a run that stopped.")
@click.option("--fresh", is_flag=True, help="Delete the existing run and start again.")
@click.option("--dry-run", is_flag=True, help="Validate everything and print batch sizes and limits; start nothing.")
@click.option(
    "--view/--no-view",
    default=None,
    help="Serve the dashboard during training and open it, or serve none; by default a terminal shows its address.",
)
@JSON
def command(
    recipe: Path,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    resume: bool,
    fresh: bool,
    dry_run: bool,
    view: bool | None,
    as_json: bool,
) -> None:
    """Train the policy of RECIPE: a TOML file, or the name of a shipped recipe."""
    resolved = load_recipe(recipe, list(overrides))
    run_dir = run_dir or Path("runs") / resolved.name
    if dry_run:
        from quartet.runtime.check.notes import print_notes

        show_plan(resolved, as_json)
        print_notes(resolved)
        _show_placement(resolved)
        _note_run_dir(resolved, overrides, run_dir, resume, fresh)
        note_lacks(resolved, run_dir.parent)
        return
    if fresh:
        _note_kept(resolved, run_dir, resume)
    if resume:
        _note_changes(resolved, overrides, run_dir)
    summary = _finished(resolved, run_dir) if resume else None
    if summary is None:
        from quartet.runtime.run import run_recipe

        _show_placement(resolved)
        with _whole_commands(run_dir):
            summary = run_recipe(
                resolved, run_dir, resume=resume, fresh=fresh, quiet=as_json, view=_view(view, as_json)
            )
    if as_json:
        say(json.dumps(summary))
        return
    from quartet.report.plot import draw_run
    from quartet.report.summary_table import summary_table
    from quartet.terminal.console import PrintableConsole

    console = PrintableConsole()
    console.print(summary_table(summary))
    console.print(f"summary  {run_dir / 'summary.json'}\npicture  {draw_run(run_dir, summary)}")
    console.print(f"next     quartet view {quote(str(run_dir))}", soft_wrap=True)


@contextmanager
def _whole_commands(run_dir: Path) -> Iterator[None]:
    """Replace `with --resume` in an error's advice by the whole command.

    An error of the recipe advises `--fresh` if the run has no rollouts, because a resumed run keeps its recipe.
    """
    try:
        yield
    except QuartetError as error:
        from quartet.manager.stop import resume_command

        if isinstance(error, ConfigError) and CONTINUE in error.advice and not _has_rollouts(run_dir):
            anew = "start the run again with --fresh; it has no rollouts yet"
            error.advice = error.advice.replace(CONTINUE, anew)
        error.advice = error.advice.replace("with --resume", f"with `{resume_command(str(run_dir))}`")
        raise


def _has_rollouts(run_dir: Path) -> bool:
    """Return whether a rollout of the run has ended, also one of an evaluation, or its ledger cannot be read."""
    from quartet.ledger import Ledger
    from quartet.report.recent import recent_statuses

    if not Ledger.exists(run_dir):
        return False
    try:
        with closing(Ledger.view(run_dir)) as ledger:
            return bool(recent_statuses(ledger, 1))
    except QuartetError:  # such as an older schema: the error whose advice this is matters more
        return True


def _view(asked: bool | None, quiet: bool) -> "View":
    """Return how the dashboard is shown; a command without a terminal serves it only if the option asks for it."""
    if asked:
        return "browser"
    return "address" if asked is None and not quiet and sys.stderr.isatty() else "none"


def _finished(recipe: Recipe, run_dir: Path) -> "Summary | None":
    """Return the summary of a finished run, and print how to continue it; return None for any other run."""
    from quartet.ledger import Ledger
    from quartet.manager.stop import higher_limit, training_so_far
    from quartet.report.summary import read_summary
    from quartet.runtime.finished import finished_by

    limit = finished_by(recipe, run_dir)
    if limit is None:
        return None
    say(f"{run_dir} is finished, so nothing is started: {limit} is reached", fg="yellow", err=True)
    with closing(Ledger.open(run_dir)) as ledger:
        option = higher_limit(limit, training_so_far(ledger))
    say(f"  -> continue with a higher limit, for instance {option}", fg="yellow", err=True)
    return read_summary(run_dir)


def _note_run_dir(recipe: Recipe, overrides: Sequence[str], run_dir: Path, resume: bool, fresh: bool) -> None:
    """Print the error about the run's folder with which the command would end without `--dry-run`, or what it would
    change."""
    from quartet.run.run_dir import check_run_dir

    try:
        check_run_dir(recipe, run_dir, resume=resume, fresh=fresh)
        if resume:
            _note_changes(recipe, overrides, run_dir)
    except ConfigError as error:
        say(f"note: without --dry-run this would fail: {error}", fg="yellow", err=True)


def _note_changes(recipe: Recipe, overrides: Sequence[str], run_dir: Path) -> None:
    """Print the settings of a resumed run that differ from those that it had, without those given by --set.

    Raise `ConfigError` as the run would.
    """
    from quartet.manager.stop import resume_command
    from quartet.recipe.file import changed_settings
    from quartet.run.run_dir import check_run_dir, stored_recipe

    check_run_dir(recipe, run_dir, resume=True)
    given = tuple(override.partition("=")[0].strip().removesuffix(".name") for override in overrides)
    changed = changed_settings(stored_recipe(run_dir), recipe)
    if changed := [name for name in changed if not any(f"{name}.".startswith(f"{one}.") for one in given)]:
        say(f"note: these settings are not those of the run before: {', '.join(changed)}", fg="yellow", err=True)
        say(f"  -> to keep its settings, use `{resume_command(str(run_dir))}`", fg="yellow", err=True)


def _note_kept(recipe: Recipe, run_dir: Path, resume: bool) -> None:
    """Print the files in the run's folder that are not deleted with the run. Raise `ConfigError` as the run would."""
    from quartet.run.run_dir import check_run_dir
    from quartet.run.run_files import foreign_names

    check_run_dir(recipe, run_dir, resume=resume, fresh=True)
    if kept := foreign_names(run_dir):
        say(f"note: keeping files in {run_dir} that are not the run's: {', '.join(kept)}", fg="yellow", err=True)


def _show_placement(recipe: Recipe) -> None:
    """Print the resources of each module of a run that is placed on a cluster."""
    if recipe.runtime.kind != "ray":
        return
    from quartet.runtime.placement import placement_plan, placement_table

    say(placement_table(placement_plan(recipe)), err=True)
