"""A whole run on a real ledger and a real data manager; chance decides what goes wrong, and what takes long."""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from quartet.config import Recipe
from quartet.errors import LeaseLostError
from quartet.ledger import AppendOutcome, Ledger
from quartet.manager.manager import DataManager
from quartet.manager.schedule import make_schedule
from quartet.registry import build
from quartet.types import Purpose, RolloutLease, RolloutState, Status
from tests.ledger.samples import FakeClock, finish, manager_of, trajectory


@dataclass
class Work:
    """A lease at work or asleep."""

    lease: RolloutLease
    versions: list[int] = field(default_factory=list)
    """Of the tokens so far, those of recalled attempts included."""


class Run:
    """`draw` decides. Worker and engine are models of themselves, everything else is real."""

    straggler_pace = 0.02
    """Chance that a straggler, one rollout in five, ends at a look."""

    def __init__(self, folder: Path, recipe: Recipe, draw: random.Random, url: str) -> None:
        self.clock, self.draw, self.recipe = FakeClock(), draw, recipe
        self.schedule, self.rule = make_schedule(recipe.admission.schedule), build(recipe.straggler, recipe)
        self.ledger = Ledger.create(folder / "run", clock=self.clock, url=url)
        self.ledger.policies.register_initial("p0")
        self.served = 0
        self.running: list[Work] = []
        self.lags: Counter[int] = Counter()
        """Of committed members, rolled back ones included."""
        self.rolled_back = False
        self.partials: dict[int, list[int]] = {}
        """By rollout: versions of the tokens with which it was recycled last."""
        self.outcomes: Counter[AppendOutcome] = Counter()

    def go(self) -> None:
        """Run until training is over."""
        while self.ledger.stop_reason() is None:
            with manager_of(self.recipe, self.ledger) as manager:  # a restart of the data manager
                for _ in range(self.draw.randint(1, 10)):
                    while manager.tick():
                        pass
                    if self.ledger.stop_reason() is None and not self.train():
                        self.must_be_alive(manager)
                        self.work()

    def must_be_alive(self, manager: DataManager) -> None:
        """Somebody is at work, or is next: the data manager after a claim that dropped groups, and so rang for it."""
        unfinished, groups = self.ledger.rollouts.unfinished(Purpose.TRAIN), self.ledger.statistics.queue_sizes().groups
        engine_is_next = not self.ledger.policies.latest_is_settled() and self.schedule.may_take_weights(
            self.ledger, self.rule
        )
        may_start = unfinished[RolloutState.QUEUED] and not self.rule.pauses_training(self.ledger)
        at_work = unfinished[RolloutState.LEASED] or groups["claimed"]
        assert may_start or at_work or engine_is_next or manager.tick(), "the run waits for nothing"

    def train(self) -> bool:
        admission, groups = self.recipe.admission, self.recipe.train.groups_per_batch
        batch = self.ledger.batches.claim("t", groups, admission.max_lag, admission.on_late, 30.0)
        if batch is None:
            return False
        if self.draw.random() < 0.3:  # the trainer dies; another one with another name comes after the lease
            self.clock.now += 31
            return False
        self.ledger.batches.commit(batch, f"p{batch.train_step}", {})
        for member in (member for group in batch.groups for member in group.members):
            self.lags[max(batch.ancestry.lags(member.trajectory.versions, batch.start_version), default=0)] += 1
        if self.draw.random() < 0.03:  # a crash between two checkpoints
            self.rolled_back = True
            self.ledger.batches.roll_back(self.ledger.batches.train_step() - 1)
        return True

    def work(self) -> None:
        engine_died = self.draw.random() < 0.03  # the next one starts with the newest policy, whatever runs
        if engine_died or (self.draw.random() < 0.5 and self.schedule.may_take_weights(self.ledger, self.rule)):
            self.served = self.ledger.policies.latest().version
            self.ledger.policies.mark_settled(self.served, serving=self.served)
        if self.draw.random() < 0.03:
            self.clock.now += self.draw.choice([31, 200])  # leases end; groups reach their deadline
        rests = self.rule.pauses_training(self.ledger)
        self.recall(rests=rests)
        for lease in self.ledger.rollouts.claim("w", self.draw.randint(1, 4), 30.0, training=not rests):
            known = [
                version
                for call in self.ledger.trajectories.load_beginning(lease).calls
                for version in call.response.versions
            ]
            assert known == self.partials.get(lease.rollout_id, []), "what was sampled is kept"
            self.running.append(Work(lease, known))
        for work in list(self.running):
            work.versions.append(self.served)
            if self.draw.random() > (self.straggler_pace if work.lease.rollout_id % 5 == 0 else 0.7):
                with suppress(LeaseLostError):
                    self.ledger.rollouts.renew(work.lease, 30.0)
                continue
            self.running.remove(work)
            status = self.draw.choice([Status.COMPLETED] * 5 + [Status.ERROR_ENGINE, Status.TRUNCATED_TIME])
            reward = float(self.draw.random() < 0.5)
            with suppress(LeaseLostError):
                versions = tuple(work.versions)
                self.outcomes[finish(self.ledger, work.lease, reward=reward, status=status, versions=versions)] += 1

    def recall(self, *, rests: bool) -> None:
        """As the worker does; some are asleep and hear it later."""
        held = self.ledger.rollouts.held(work.lease for work in self.running)
        for work in list(self.running):
            unwanted = rests or (work.lease.rollout_id, work.lease.attempt) not in held
            if not unwanted or self.draw.random() < 0.3:
                continue
            self.running.remove(work)
            partial = trajectory(work.lease.task, status=Status.CANCELLED, versions=tuple(work.versions))
            with suppress(LeaseLostError):
                outcome = self.ledger.trajectories.recycle(work.lease, partial, self.rule.max_recycles)
                self.outcomes[outcome] += 1
                if outcome is AppendOutcome.RECYCLED:
                    self.partials[work.lease.rollout_id] = work.versions
