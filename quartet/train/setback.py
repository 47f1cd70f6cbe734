"""Handling of failed train steps: retry the batch, then quarantine failing groups, and finally end the run.

A batch is tried `train.max_batch_attempts` times. Then each of its groups is computed alone, without an optimizer step.
Groups that fail alone are quarantined, that is, dropped permanently. If no group fails alone, all groups of the batch
are quarantined. Several ranks must be started again after an error that only one of them raised. Then no group can be
computed alone, and all groups are quarantined at the next failure.

If the cause is not in the data, every batch fails. After `train.max_quarantined_batches` batches without a successful
train step between them, the run ends with the error.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from quartet.config import Recipe
from quartet.errors import QuartetError, UntrainableError
from quartet.ledger import Ledger
from quartet.telemetry.presence import Presence
from quartet.train.credit.base import Credit
from quartet.train.ranks.base import OF_MACHINE, RankLostError
from quartet.train.step import Learner
from quartet.train.train_batch import rehearse
from quartet.types import Batch

LOG = logging.getLogger(__name__)
LONGEST_ERROR = 1000
"""Maximum number of characters of an error message in the ledger; the trainer's log has the full text."""


class FailedStepError(QuartetError):
    """Raised if the arithmetic of a train step fails; `__cause__` is the reason."""


@contextmanager
def arithmetic_of(batch: Batch, progress: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Convert an error in the arithmetic of a batch to `FailedStepError`, which names the train step and the error.

    Errors of the ledger or of the machine, and the loss of another rank, do not depend on the batch and are raised
    unchanged. So are those of `progress`, if the block calls it by the function that it gets. Any other error that
    another rank left behind counts as the batch's.
    """
    where = f"train step {batch.train_step}, batch {batch.batch_id}, policy version {batch.start_version}"
    of_progress: list[Exception] = []

    def noted() -> None:
        try:
            progress()
        except Exception as error:
            of_progress.append(error)
            raise

    try:
        yield noted
    except Exception as error:
        # This is the trainer's only broad `except` that ends an error. An error that a batch causes, such as an index
        # out of range or too little memory, must not end the run; it would end every resumed run in the same way.
        if error in of_progress or isinstance(error, (*OF_MACHINE, RankLostError)):
            raise
        if isinstance(error, QuartetError):
            raise FailedStepError(f"{where}, {error.what}", error.advice) from error
        raise FailedStepError(f"{where}, {type(error).__name__}: {str(error)[:LONGEST_ERROR]}") from error


class Setback:
    """Handling of the failed train steps of one trainer."""

    def __init__(
        self, recipe: Recipe, ledger: Ledger, learner: Learner, credits: Sequence[Credit], presence: Presence
    ) -> None:
        self._recipe, self._ledger, self._learner = recipe, ledger, learner
        self._credits, self._presence = credits, presence

    def settle(self, batch: Batch, error: FailedStepError, restore: Callable[[], None]) -> None:
        """Release the batch, undo the step's changes to the weights by `restore`, and quarantine groups if the batch
        has failed too often.

        Raise `UntrainableError` if groups of too many batches in a row were quarantined.
        """
        LOG.error("%s", error, exc_info=error.__cause__)
        attempts, most = self._ledger.batches.fail(batch, error.what), self._recipe.train.max_batch_attempts
        bad = self._all(batch) if attempts > most else []  # an earlier search (`_failing`) ended the process
        if attempts == most:  # before the weights are restored: the step may succeed under those of an old checkpoint
            bad = self._failing(batch) or self._all(batch)
        if bad:
            self._quarantine(batch, bad, error)
        restore()

    def _failing(self, batch: Batch) -> list[int]:
        """Return the ids of the groups that fail when they are computed alone."""
        return [group.group_id for group in batch.groups if self._fails(replace(batch, groups=[group]))]

    def _fails(self, batch: Batch) -> bool:
        try:
            with arithmetic_of(batch, self._presence.beat) as progress:
                rehearse(batch, self._learner, self._recipe, self._credits, progress)
        except FailedStepError:
            return True
        return False

    def _quarantine(self, batch: Batch, group_ids: list[int], error: FailedStepError) -> None:
        LOG.error("quarantined %d of %d groups of batch %d", len(group_ids), len(batch.groups), batch.batch_id)
        streak = self._ledger.batches.quarantine(batch, group_ids, error.what)
        if streak >= self._recipe.train.max_quarantined_batches:
            raise UntrainableError(
                f"{streak} batches in a row could not be trained; the last error: {error.what}",
                error.advice or "see the traceback in logs/trainer.jsonl, fix the cause, then continue with --resume",
            )

    @staticmethod
    def _all(batch: Batch) -> list[int]:
        return [group.group_id for group in batch.groups]
