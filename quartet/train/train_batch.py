"""Arithmetic of a train step on one batch, without access to files or the ledger.

With float32 and one thread, the same batch, weights and optimizer state give the same result, bit for bit. The trainer
relies on this after a crash, and the audit relies on it when it repeats the train steps of a run.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from quartet.config import Recipe
from quartet.train.assign import assign, needs_of
from quartet.train.credit.base import Credit
from quartet.train.packing.branches import PackedBatch, pack_batch
from quartet.train.ranks.orders import Rehearse, Train
from quartet.train.scoring import Plan
from quartet.train.step import Learner
from quartet.train.token_record import TokenRecord
from quartet.types import Batch

Phases = Callable[[str], AbstractContextManager[None]]
"""Context manager around each phase of a train step, by the phase's name."""


def train_batch(
    batch: Batch,
    learner: Learner,
    recipe: Recipe,
    credits: Sequence[Credit],
    *,
    progress: Callable[[], None],
    phases: Phases,
    record: TokenRecord | None = None,
) -> tuple[PackedBatch, dict[str, float]]:
    """Train the learner on a batch; return the packed batch and the metrics of `Learner.update`.

    All ranks of the learner do it together. `progress` is called after each microbatch; `record` receives the tokens'
    values. Raise `NonFiniteError` if a loss or gradient is not finite.
    """
    with learner.ranks.together(Train(batch)):
        packed, plan = _prepare(batch, learner, recipe, credits, progress, phases)
        with phases("update"):
            before = learner.optimizer_step
            metrics = learner.update(plan, progress, record.see if record else None)
            # Without an optimizer step there is nothing that `Trainer` would undo, so the reference moves later.
            if learner.moving_reference is not None and learner.optimizer_step != before:
                learner.moving_reference.follow(batch.train_step)
        if record:
            record.gather(learner.ranks)
    return packed, metrics


def rehearse(
    batch: Batch, learner: Learner, recipe: Recipe, credits: Sequence[Credit], progress: Callable[[], None]
) -> None:
    """Compute all losses and gradients of `train_batch` without changing the weights. Raise the same errors."""
    with learner.ranks.together(Rehearse(batch)):
        _, plan = _prepare(batch, learner, recipe, credits, progress, lambda phase: nullcontext())
        learner.rehearse(plan, progress)


def credited(
    batch: Batch, packed: PackedBatch, learner: Learner, credits: Sequence[Credit], progress: Callable[[], None]
) -> PackedBatch:
    """Return the packed batch with credit assigned under the learner's present weights."""
    passes = learner.passes(needs_of(credits), packed.branches, progress)
    with learner.ranks.alike():
        return assign(batch, packed, credits, passes)


def _prepare(
    batch: Batch,
    learner: Learner,
    recipe: Recipe,
    credits: Sequence[Credit],
    progress: Callable[[], None],
    phases: Phases,
) -> tuple[PackedBatch, Plan]:
    with phases("pack"), learner.ranks.alike():
        packed = pack_batch(batch, recipe.admission.max_lag)
    with phases("credit"):
        packed = credited(batch, packed, learner, credits, progress)
    with phases("old_logprobs"):
        return packed, learner.plan(packed.branches, batch.train_step, progress)
