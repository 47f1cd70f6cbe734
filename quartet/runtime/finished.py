"""Detect finished runs: if a limit ended a run, a resume with the same limit has nothing to do."""

from contextlib import closing
from pathlib import Path

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.stop import reached_limit
from quartet.report.evaluated import after_tag
from quartet.report.summary import read_summary
from quartet.run.run_dir import RunLock, check_run_dir
from quartet.types.phase import FINISHED
from quartet.types.plan import GREEDY


def mark_finished(run_dir: Path) -> None:
    """Mark a run as finished, as its last write. Raises `SetupError` if another process has resumed the run."""
    with RunLock(run_dir), closing(Ledger.open(run_dir)) as ledger:
        ledger.enter_phase(FINISHED)


def finished_by(recipe: Recipe, run_dir: Path) -> str | None:
    """Return the limit that a finished run has reached, for example `train.max_train_steps = 10`.

    Return None if the run would continue when resumed with `recipe`. The ledger of an older run is upgraded, as at any
    resume. The run's lock is held during the upgrade, so that an older Quartet cannot use the ledger. Raises
    `ConfigError` if there is nothing to resume, or the recipe changes a setting that is fixed at resume. Raises
    `SetupError` if the run is active.
    """
    check_run_dir(recipe, run_dir, resume=True)
    if not Ledger.exists(run_dir):
        return None
    with RunLock(run_dir), closing(Ledger.open(run_dir, upgrade=True)) as ledger:
        if ledger.value("phase") != FINISHED or _lacks_evaluation(recipe, ledger) or _lacks_control(recipe, run_dir):
            return None
        return reached_limit(recipe.train, ledger)


def _lacks_evaluation(recipe: Recipe, ledger: Ledger) -> bool:
    """Return whether the newest policy has no evaluation although the run is finished: older versions of Quartet cut it
    off at a resume, or took that of a policy that was rolled back for it."""
    return recipe.evaluation.before_and_after and not ledger.evaluations.was_admitted(f"{after_tag(ledger)}{GREEDY}")


def _lacks_control(recipe: Recipe, run_dir: Path) -> bool:
    """Return whether a resume has work to do after training: the supervised control, or a missing summary.

    The control is lacking if the recipe requests it, the run trained, and its summary has no result of it.
    """
    summary = read_summary(run_dir)
    if summary is None:  # a copy without a summary; a resume writes it again
        return True
    return (
        recipe.evaluation.supervised_control and bool(summary["train_seconds"]) and summary["success_control"] is None
    )
