"""Progress of a run in its phase, and the limit that will end the phase."""

from math import isfinite

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.stop import AMOUNTS
from quartet.report.recent import evaluation_counts
from quartet.report.show import count
from quartet.types.phase import EVALUATING, TRAINING
from quartet.types.plan import BLIND, GREEDY, SAMPLED

_UNITS = {"max_seconds": "s", "max_train_steps": "train steps", "max_rollouts": "rollouts"}
"""Units of the limits whose amount grows steadily."""


class RunProgress(Struct, frozen=True, kw_only=True):
    """Progress towards the limit that will end the phase. If there are several limits, the nearest one counts."""

    share: float
    """Completed share of the phase, 0 to 1."""
    what: str
    """The progress in words, for example `312 of 705 s (train.max_seconds)`."""
    seconds_left: float | None
    """Estimated seconds to the limit at the speed so far; None if there is no estimate."""


def run_progress(recipe: Recipe, ledger: Ledger, phase: str) -> RunProgress | None:
    """Return the progress towards the nearest limit; None in a phase without a known end."""
    if phase == TRAINING:
        seconds = AMOUNTS["max_seconds"](ledger)
        limits = {name: getattr(recipe.train, name) for name in _UNITS}
        finite = {name: limit for name, limit in limits.items() if limit is not None and isfinite(limit)}
        towards = [_towards(name, limit, ledger, seconds) for name, limit in finite.items()]
        # While all are at 0, this is the time limit, since only its speed is known.
        return max(towards, key=lambda one: one.share, default=None)
    if not phase.startswith(EVALUATING):
        return None
    when = phase.removeprefix(EVALUATING)
    done, total = evaluation_counts(ledger, [f"{when}{how}" for how in (GREEDY, SAMPLED, BLIND)])
    if not total:
        return None
    return RunProgress(share=done / total, what=f"{count(done)} of {count(total)} episodes", seconds_left=None)


def _towards(name: str, limit: float, ledger: Ledger, seconds: float) -> RunProgress:
    """Return the progress towards the limit `train.NAME`, after `seconds` of training."""
    amount = AMOUNTS[name](ledger)
    left = max(0.0, limit - amount)
    return RunProgress(
        share=min(1.0, amount / limit),
        what=f"{count(amount)} of {count(limit)} {_UNITS[name]} (train.{name})",
        seconds_left=left if name == "max_seconds" else seconds / amount * left if amount else None,
    )
