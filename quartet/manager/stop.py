"""When training ends: the last train step, or the time. A train step in progress is always finished."""

import re

from quartet.config import Train
from quartet.ledger import Ledger


def reached_limit(train: Train, train_step: int, seconds: float) -> str | None:
    """The limit that ends training, `train.max_train_steps = 10` for instance, or None. `train_step` is the last
    committed one, `seconds` were trained, both over all starts of the run."""
    if train_step >= train.max_train_steps:
        return f"train.max_train_steps = {train.max_train_steps}"
    return f"train.max_seconds = {train.max_seconds:g}" if seconds >= train.max_seconds else None


def higher_limit(reason: str, train_step: int = 0, seconds: float = 0.0) -> str:
    """The option that lets a run go on which ended for `reason`; empty when no limit ended it.

    It doubles the limit, or what was trained when the limit was set below that: `train_step` is the last committed one,
    `seconds` were trained.
    """
    limit = re.match(r"(train\.max_train_steps|train\.max_seconds) = (\S+)", reason)
    if limit is None:
        return ""
    if limit[1] == "train.max_train_steps":
        return f"--set {limit[1]}={2 * max(int(limit[2]), train_step)}"
    return f"--set {limit[1]}={2 * max(float(limit[2]), seconds):g}"


def resume_command(run: str, reason: str, train_step: int = 0, seconds: float = 0.0) -> str:
    """How the run in the folder `run` goes on, after a limit that it ended for with a higher one: `higher_limit`."""
    option = higher_limit(reason, train_step, seconds)
    return f"quartet train {run}/config.toml --run-dir {run} --resume {option}".rstrip()


class StopRule:
    """Ends training through the ledger: first no further batch can be claimed, then a stop is requested."""

    def __init__(self, train: Train, ledger: Ledger) -> None:
        self._train, self._ledger = train, ledger
        # The ledger refuses claims beyond the last step, so that the trainer cannot run past it between two ticks.
        ledger.limit_train_steps(train.max_train_steps)

    def ending(self, train_step: int, seconds: float) -> bool:
        """Whether training is over or about to be. `train_step` is the last committed one, `seconds` were trained."""
        if self._ledger.stop_reason() is not None:
            return True
        limit = reached_limit(self._train, train_step, seconds)
        if limit is None:
            return False
        if train_step >= self._train.max_train_steps or self._ledger.stop_claims():
            self._ledger.request_stop(f"{limit} reached")
        return True
