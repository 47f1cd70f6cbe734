"""The ranks of a trainer other than rank 0: they carry out its orders. They use the ledger only to read pictures."""

import logging
from collections import deque
from collections.abc import Callable
from concurrent import futures
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.on_progress import no_progress
from quartet.train.assign import credits_of
from quartet.train.checkpoint.files import load_state, take_snapshot, write_checkpoint
from quartet.train.frozen import load_frozen
from quartet.train.packing.sight import sight_of
from quartet.train.ranks.base import Ranks
from quartet.train.ranks.fsdp import is_shared
from quartet.train.ranks.orders import End, GatherWeights, Order, Rehearse, Restore, SaveState, Train
from quartet.train.starting_policy import load_starting_policy
from quartet.train.step import Learner
from quartet.train.token_record import TokenRecord
from quartet.train.train_batch import rehearse, train_batch

LOG = logging.getLogger(__name__)


class Follower:
    """One rank of the trainer of `policy`. Its learner is made by the first order, `Restore`."""

    def __init__(self, recipe: Recipe, policy: str, ranks: Ranks, view_ledger: Callable[[], Ledger]) -> None:
        """`view_ledger` opens the run's ledger for reading. It is called once, for a policy that reads pictures."""
        self._recipe, self._policy, self._ranks, self._view_ledger = recipe, policy, ranks, view_ledger
        self._credits = credits_of(recipe)
        self._learner: Learner | None = None
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: futures.Future[None] | None = None

    def run(self) -> None:
        """Carry out orders until rank 0 ends the training. Raise the error of a checkpoint that could not be
        written."""
        while not isinstance(order := self._ranks.receive(), End):
            try:
                with self._ranks.together(order):
                    self._carry_out(order)
            except Exception as error:
                if not is_shared(error):
                    raise
                LOG.error("%s", error)  # rank 0 raises it too, and decides what follows
        self._finish_writing()

    def _carry_out(self, order: Order) -> None:
        if isinstance(order, Restore):
            self._restore(order)
            return
        learner = self._learner
        assert learner is not None, "the first order is `Restore`"
        match order:
            case Train(batch):
                record = TokenRecord(batch) if self._recipe.disk.max_token_values_megabytes else None
                train_batch(
                    batch, learner, self._recipe, self._credits, progress=no_progress, phases=_untimed, record=record
                )
            case Rehearse(batch):
                rehearse(batch, learner, self._recipe, self._credits, no_progress)
            case GatherWeights():
                deque(learner.whole_weights(), maxlen=0)
            case SaveState(folder, train_step):
                self._finish_writing()
                snapshot = take_snapshot(learner, train_step)
                self._writing = self._thread.submit(
                    partial(write_checkpoint, Path(folder), snapshot, ranks=self._ranks)
                )

    def _finish_writing(self) -> None:
        """Wait for the previous checkpoint, which rank 0 has waited for."""
        if self._writing is not None:
            self._writing.result()

    def _restore(self, order: Restore) -> None:
        loaded = load_starting_policy(self._recipe, self._policy, Path(order.policy))
        if self._learner is None:
            initial = Path(self._recipe.policy_sources[self._policy].source)
            frozen = load_frozen(self._recipe, self._credits, initial)
            sight = sight_of(loaded.pictures, self._view_ledger(), self._recipe) if loaded.pictures else None
            self._learner = Learner(loaded.model, self._recipe, frozen, sight, self._ranks)
        else:
            self._learner.take_weights(loaded.model)
        load_state(Path(order.checkpoint) if order.checkpoint else None, self._learner)


def _untimed(phase: str) -> nullcontext[None]:
    return nullcontext()
