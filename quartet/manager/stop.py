"""End of training after a number of train steps or a time. A train step in progress is finished first."""

import re

from quartet.config import Train
from quartet.ledger import Ledger


def reached_limit(train: Train, train_step: int, seconds: float) -> str | None:
    """Return the limit that ends training, for example `train.max_train_steps = 10`, or None.

    `train_step` is the last committed train step. `seconds` is the training time over all starts of the run.
    """
    if train_step >= train.max_train_steps:
        return f"train.max_train_steps = {train.max_train_steps}"
    return f"train.max_seconds = {train.max_seconds:g}" if seconds >= train.max_seconds else None


def higher_limit(reason: str, train_step: int = 0, seconds: float = 0.0) -> str:
    """Return the option that raises the limit named in the stop reason `reason`; empty if no limit ended the run.

    The option doubles the limit, or `train_step` (the last committed one) or `seconds` (of training) if that is larger.
    """
    limit = re.match(r"(train\.max_train_steps|train\.max_seconds) = (\S+)", reason)
    if limit is None:
        return ""
    if limit[1] == "train.max_train_steps":
        return f"--set {limit[1]}={2 * max(int(limit[2]), train_step)}"
    return f"--set {limit[1]}={2 * max(float(limit[2]), seconds):g}"


def resume_command(run: str, reason: str, train_step: int = 0, seconds: float = 0.0) -> str:
    """Return the command that resumes the run in folder `run`; if a limit ended the run, it raises that limit."""
    option = higher_limit(reason, train_step, seconds)
    return f"quartet train {run}/config.toml --run-dir {run} --resume {option}".rstrip()


class StopRule:
    """Rule that ends training through the ledger: it first stops further claims of batches, then requests the stop."""

    def __init__(self, train: Train, ledger: Ledger) -> None:
        self._train, self._ledger = train, ledger
        # The ledger rejects claims after the last step, so that the trainer cannot exceed the limit between two ticks.
        ledger.batches.limit_train_steps(train.max_train_steps)

    def ending(self, train_step: int, seconds: float) -> bool:
        """Return whether training is over or ending. `train_step` is the last committed one, `seconds` is the training
        time."""
        if self._ledger.stop_reason() is not None:
            return True
        limit = reached_limit(self._train, train_step, seconds)
        if limit is None:
            return False
        if train_step >= self._train.max_train_steps or self._ledger.batches.stop_claims():
            self._ledger.request_stop(f"{limit} reached")
        return True
