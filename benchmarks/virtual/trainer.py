"""The trainer in virtual time, on the real ledger: claim a batch, train for the forecast's duration, commit."""

from collections import Counter
from collections.abc import Callable

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.scenario import Scenario
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.types import Batch

_LEASE_SECONDS = 1e6


class VirtualTrainer:
    """The trainer of the ledger's policy. `committed` is called with the new version after each commit."""

    def __init__(
        self, clock: VirtualClock, scenario: Scenario, recipe: Recipe, ledger: Ledger, committed: Callable[[int], None]
    ) -> None:
        self._clock, self._scenario, self._recipe, self._ledger = clock, scenario, recipe, ledger
        self._committed, self.training = committed, False
        self.train_steps, self.rollouts, self.actions, self.busy_seconds = 0, 0, 0, 0.0
        self.lags: list[int] = []
        self.trained: list[int] = []
        """Rollouts of the committed batches, by their id."""

    def claim(self) -> None:
        """Begin a train step if a batch can be claimed."""
        if self.training:
            return
        admission = self._recipe.admission
        lag = admission.max_lag if self._scenario.trained_lag is None else self._scenario.trained_lag
        batch = self._ledger.batches.claim(
            "trainer", self._recipe.train.groups_per_batch, lag, admission.on_late, _LEASE_SECONDS
        )
        if batch is None:
            return
        self.training = True
        seconds = self._scenario.trainer.step_seconds(
            self._scenario.trainer_gpus, self._scenario.model, self._trained_tokens(batch)
        )
        self._clock.after(seconds, lambda: self._commit(batch, seconds))

    def _trained_tokens(self, batch: Batch) -> float:
        """Return the tokens of the batch's turns, at most `max_trained_turns` of them."""
        turns = Counter[str]()
        for group in batch.groups:
            turns[group.task.family] += sum(len(member.trajectory.turns) for member in group.members)
        tokens = sum(count * self._scenario.kinds[family].workload.tokens_per_turn for family, count in turns.items())
        return tokens * self._trained_turns(turns.total()) / turns.total()

    def _trained_turns(self, turns: int) -> int:
        return min(turns, self._scenario.max_trained_turns or turns)

    def _commit(self, batch: Batch, seconds: float) -> None:
        members = [member.trajectory for group in batch.groups for member in group.members]
        policy = self._ledger.batches.commit(batch, f"policies/v{batch.train_step:06d}", {})
        self.training = False
        self.train_steps += 1
        self.busy_seconds += seconds
        self.rollouts += len(members)
        self.actions += self._trained_turns(sum(len(member.turns) for member in members))
        self.trained += [member.rollout_id for group in batch.groups for member in group.members]
        oldest = [member.oldest_version for member in members if member.oldest_version is not None]
        self.lags += [batch.start_version - version for version in oldest]
        self._committed(policy.version)
