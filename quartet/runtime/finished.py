"""A run that a limit ended is finished: resumed with that limit, it has nothing left to do, and nothing is started."""

from contextlib import closing
from pathlib import Path

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.stop import reached_limit
from quartet.report.summary import read_summary
from quartet.run.run_dir import RunLock, check_run_dir
from quartet.types.phase import FINISHED


def mark_finished(run_dir: Path) -> None:
    """The run's last write. Raises `SetupError` when somebody has resumed it meanwhile."""
    with RunLock(run_dir), closing(Ledger.open(run_dir)) as ledger:
        ledger.enter_phase(FINISHED)


def finished_by(recipe: Recipe, run_dir: Path) -> str | None:
    """The limit of `recipe` that a finished run has reached, `train.max_train_steps = 10` for instance; None for a run
    that goes on when it is resumed.

    An older run's ledger is upgraded, as at any resume; the lock keeps an older Quartet from it meanwhile. Raises
    `ConfigError` when there is nothing to resume or the recipe does not fit, `SetupError` when the run is at work.
    """
    check_run_dir(recipe, run_dir, resume=True)
    if not Ledger.exists(run_dir):
        return None
    with RunLock(run_dir), closing(Ledger.open(run_dir, upgrade=True)) as ledger:
        if ledger.value("phase") != FINISHED or _lacks_control(recipe, run_dir):
            return None
        return reached_limit(recipe.train, ledger.least_train_step(), float(ledger.value("training_seconds", 0.0)))


def _lacks_control(recipe: Recipe, run_dir: Path) -> bool:
    """Whether the control is asked for only now; a run that did not train has none."""
    summary = read_summary(run_dir)
    if summary is None:  # a copy without it: a resume writes it anew
        return True
    return recipe.evaluation.control and bool(summary["train_seconds"]) and summary["success_control"] is None
