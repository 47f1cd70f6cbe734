"""Wait of a trainer for a batch: report the reason, and end the run after a time limit."""

import time

from quartet.config import Recipe
from quartet.errors import StarvedError
from quartet.ledger import Ledger
from quartet.telemetry.presence import TRAINABLE_GROUPS, Presence
from quartet.train.starvation import STARVED, reason_without_batch
from quartet.types.phase import STOPPING, TRAINING, wait_in


class BatchWait:
    """Wait between two batches."""

    def __init__(self, recipe: Recipe, ledger: Ledger, presence: Presence) -> None:
        self._train, self._admission = recipe.train, recipe.admission
        self._ledger, self._presence = ledger, presence
        self._fed_at = time.monotonic()
        self._held_back_at: float | None = None

    def end(self) -> float:
        """End the wait. Return how many seconds of it the batch was held back for due groups (see `_held_back`); always
        0 unless `on_late` is "wait"."""
        held_back_at, self._held_back_at = self._held_back_at, None
        return time.monotonic() - held_back_at if held_back_at else 0.0

    def begin(self) -> None:
        """Begin the wait, after a batch has been trained or released."""
        self._fed_at = time.monotonic()

    def explain(self) -> None:
        """Report the reason of the wait.

        After `train.starved_timeout_seconds` of training without a batch, request the end of the run, and raise
        `StarvedError` unless the reason is that no rollout fails any more.
        """
        groups, timeout_seconds = self._train.groups_per_batch, self._train.starved_timeout_seconds
        phase = STOPPING if self._ledger.stop_reason() is not None else self._ledger.value("phase", TRAINING)
        if phase == TRAINING and self._held_back(groups):
            return
        food = (f"{groups} {TRAINABLE_GROUPS}", "rollouts of enough groups finish and pass the filters")
        self._presence.waits(*wait_in(phase, *food))
        if phase != TRAINING:  # before the first admission or while stopping, a wait is not starvation
            self._fed_at = time.monotonic()
            return
        waited_seconds = time.monotonic() - self._fed_at
        if waited_seconds > timeout_seconds:
            reason = reason_without_batch(
                self._ledger,
                f"fewer than {groups} trainable groups for {waited_seconds:.0f} s "
                f"(train.starved_timeout_seconds = {timeout_seconds:g})",
            )
            self._ledger.request_stop(reason)
            if reason.startswith(STARVED):
                raise StarvedError(reason, "see 'Starved' in docs/troubleshooting.md")

    def _held_back(self, groups: int) -> bool:
        """Return whether a batch is held back for due groups (`on_late` "wait"); such a wait is not starvation.

        A due group is an unfinished group that the next policy would make too old.
        """
        admission = self._admission
        if admission.on_late != "wait" or not (count := self._ledger.batches.due_groups(groups, admission.max_lag)):
            self._held_back_at = None
            return False
        self._fed_at = time.monotonic()
        self._held_back_at = self._held_back_at or self._fed_at
        self._presence.waits(
            "unfinished groups that the next policy would make too old",
            f"{count} of them end, at {admission.group_deadline_seconds:g} s (admission.group_deadline_seconds) at the "
            "latest",
        )
        return True
