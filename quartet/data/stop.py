"""When training ends: the last train step, or the time. A train step in progress is always finished."""

from quartet.config import Train
from quartet.data.ledger import Ledger


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
        if train_step >= self._train.max_train_steps:
            self._ledger.request_stop(f"train.max_train_steps = {self._train.max_train_steps} reached")
            return True
        if seconds < self._train.max_seconds:
            return False
        if self._ledger.stop_claims():
            self._ledger.request_stop(f"train.max_seconds = {self._train.max_seconds:g} reached")
        return True
