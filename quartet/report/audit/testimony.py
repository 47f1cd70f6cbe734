"""Receipts in order: what workers offered, which train steps led to the present weights, what else was computed."""

from collections import defaultdict
from collections.abc import Sequence

from quartet.errors import QuartetError
from quartet.ledger import AppendOutcome
from quartet.telemetry.receipts import Appended, Appending, Committed, Committing, Receipt, Restored
from quartet.types import Purpose, Status


class UnexplainedWeightsError(QuartetError):
    """No receipt tells where some weights came from."""


class Testimony:
    """What worker and trainer processes wrote, by what an audit asks. `receipts` are oldest first."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        outcomes = {(r.rollout_id, r.attempt): r.outcome for r in receipts if isinstance(r, Appended)}
        training = [r for r in receipts if isinstance(r, Appending) and r.purpose == Purpose.TRAIN]
        self.appends = [(r, outcomes.get((r.rollout_id, r.attempt))) for r in training]
        """Every append of a training rollout with its outcome; None when the worker did not live to see it."""
        self.superseded = sum(outcome == "superseded" for outcome in outcomes.values())
        """Appends that came too late and were refused, evaluation included."""
        self.computed = [r for r in receipts if isinstance(r, Committing)]
        self.committed = {r.batch_id: r for r in receipts if isinstance(r, Committed)}
        self.restored = [r for r in receipts if isinstance(r, Restored)]

    def appended(self) -> set[int]:
        """Countable training rollouts whose worker was told that they are stored."""
        stored = (receipt for receipt, outcome in self.appends if outcome == AppendOutcome.APPENDED)
        return {receipt.rollout_id for receipt in stored if Status(receipt.status).countable}

    def offered(self) -> dict[int, set[str]]:
        """Digests of what may rightly be trained, by rollout: whatever was not refused."""
        digests: defaultdict[int, set[str]] = defaultdict(set)
        for receipt, outcome in self.appends:
            if outcome in (AppendOutcome.APPENDED, None):
                digests[receipt.rollout_id].add(receipt.digest)
        return digests

    def chain(self, first: str, last: str, train_step: int) -> list[Committing]:
        """The train steps that led from the weights `first` (a digest) to `last`, which are those of `train_step`.

        Found backwards by the digests alone. Raises `UnexplainedWeightsError` when it ends elsewhere.
        """
        by_result = {(r.train_step, r.weights): r for r in sorted(self.computed, key=self._was_committed)}
        steps: list[Committing] = []
        for step in range(train_step, 0, -1):
            if (step, last) not in by_result:
                raise UnexplainedWeightsError(f"no receipt says how the weights of train step {step} came about")
            steps.append(by_result[step, last])
            last = steps[-1].start_weights
        if last != first:
            raise UnexplainedWeightsError("the first train step did not start from the initial policy")
        return steps[::-1]

    def _was_committed(self, receipt: Committing) -> bool:
        """The same batch, trained again after a crash, gives the same weights: the one known to be committed counts."""
        return receipt.batch_id in self.committed
