"""Progress of a run in its phase, and the limit that will end the phase."""

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.report.recent import evaluation_counts
from quartet.report.show import count
from quartet.types.phase import EVALUATING, TRAINING


class RunProgress(Struct, frozen=True, kw_only=True):
    """Progress towards the limit that will end the phase. If there are several limits, the nearest one counts."""

    share: float
    """Completed share of the phase, 0 to 1."""
    what: str
    """The progress in words, for example `312 of 705 s (train.max_seconds)`."""
    seconds_left: float | None
    """Estimated seconds to the limit at the speed so far; None if there is no estimate."""


def run_progress(recipe: Recipe, ledger: Ledger, phase: str, train_step: int) -> RunProgress | None:
    """Return the progress; None in a phase without a known end."""
    if phase == TRAINING:
        seconds = float(ledger.value("training_seconds", 0.0))
        limits = _by_seconds(recipe, seconds), _by_steps(recipe, train_step, seconds)
        return max(limits, key=lambda one: one.share)  # while both are at 0, the time limit: only its speed is known
    if not phase.startswith(EVALUATING):
        return None
    when = phase.removeprefix(EVALUATING)
    done, total = evaluation_counts(ledger, [f"{when}/greedy", f"{when}/sampled"])
    if not total:
        return None
    return RunProgress(share=done / total, what=f"{count(done)} of {count(total)} episodes", seconds_left=None)


def _by_steps(recipe: Recipe, train_step: int, seconds: float) -> RunProgress:
    limit = recipe.train.max_train_steps
    return RunProgress(
        share=min(1.0, train_step / limit),
        what=f"{count(train_step)} of {count(limit)} train steps (train.max_train_steps)",
        seconds_left=max(0.0, seconds / train_step * (limit - train_step)) if train_step else None,
    )


def _by_seconds(recipe: Recipe, seconds: float) -> RunProgress:
    limit = recipe.train.max_seconds
    return RunProgress(
        share=min(1.0, seconds / limit),
        what=f"{count(seconds)} of {count(limit)} s (train.max_seconds)",
        seconds_left=max(0.0, limit - seconds),
    )
