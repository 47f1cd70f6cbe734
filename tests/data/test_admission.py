"""Admission: bounded staleness without deadlock, whatever is dropped, fails, dies or is restarted."""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from samples import FakeClock, finish, manager_of, recipe

from quartet.data.admission import capacity
from quartet.data.ledger import Ledger
from quartet.errors import LeaseLostError
from quartet.types import RolloutLease, Status

counts = st.integers(0, 60)


@settings(deadline=None)
@given(ahead=counts, max_ahead=st.integers(1, 40), queued=counts, sessions=st.integers(1, 40), size=st.integers(1, 20))
def test_the_rule(ahead, max_ahead, queued, sessions, size):
    found = capacity(ahead=ahead, max_ahead=max_ahead, queued=queued, sessions=sessions, rollouts_per_group=size)
    assert found.groups == 0 or ahead + found.groups <= max_ahead
    assert found.groups == 0 or queued + found.groups * size <= max(2 * sessions, size)
    assert bool(found.waiting_for and found.ends_when) == (found.groups == 0)
    if queued == 0 and ahead < max_ahead:
        assert found.groups > 0


@settings(max_examples=150, deadline=None)
@given(
    lag=st.integers(0, 3),
    groups_per_batch=st.integers(1, 4),
    size=st.integers(1, 6),
    sessions=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_the_reference_model_never_deadlocks(lag, groups_per_batch, size, sessions, seed):
    """A small model of the flow: `open_groups` holds the unfinished rollouts of each open group, first come first."""
    draw = random.Random(seed)
    open_groups: list[int] = []
    trainable = running = trained = 0
    for _ in range(300):
        queued = sum(open_groups) - running
        ahead = len(open_groups) + trainable
        admitted = capacity(
            ahead=ahead,
            max_ahead=(lag + 1) * groups_per_batch,
            queued=queued,
            sessions=sessions,
            rollouts_per_group=size,
        ).groups
        open_groups += [size] * admitted
        if trainable >= groups_per_batch:
            trainable, trained = trainable - groups_per_batch, trained + 1
            continue
        assert sum(open_groups) > 0, "the trainer waits, nothing is queued or running, and there is no capacity"
        running = min(sessions, sum(open_groups))
        group = draw.randrange(len(open_groups))
        if draw.random() < 0.8 and running:
            open_groups[group] -= 1
            running -= 1
        if open_groups[group] == 0:
            open_groups.pop(group)
            trainable += draw.random() < 0.7
    assert trained > 0


class Run:
    """A whole run on a real ledger and a real data manager; `draw` decides what goes wrong."""

    def __init__(self, folder: Path, max_lag: int, draw: random.Random) -> None:
        self.clock, self.draw, self.folder = FakeClock(), draw, folder
        self.recipe = recipe(admission={"max_lag": max_lag}, train={"groups_per_batch": 2, "max_train_steps": 4})
        self.ledger = Ledger.create(folder, clock=self.clock)
        self.ledger.register_initial_policy("p0")
        self.asleep: list[RolloutLease] = []

    def go(self) -> int:
        """Run until training is over; returns the number of rounds it took."""
        rounds = 0
        while self.ledger.stop_reason() is None:
            with manager_of(self.recipe, self.ledger, self.clock) as manager:  # a restart of the data manager
                for _ in range(self.draw.randint(1, 10)):
                    rounds += 1
                    while manager.tick():
                        pass
                    if self.ledger.stop_reason() is None and not self.train():
                        self.must_be_alive()
                        self.work()
        return rounds

    def must_be_alive(self) -> None:
        sizes = self.ledger.queue_sizes()
        assert sum(sizes.rollouts.values()) > 0 or sizes.groups["claimed"] > 0, "the run waits for nothing"

    def train(self) -> bool:
        batch = self.ledger.claim_batch("t", 2, self.recipe.admission.max_lag, "drop", 30.0)
        if batch is None:
            return False
        if self.draw.random() < 0.3:  # the trainer dies; another one with another name comes after the lease
            self.clock.now += 31
            return False
        self.ledger.commit_batch(batch, f"p{batch.train_step}", {})
        return True

    def work(self) -> None:
        if self.draw.random() < 0.1:
            self.clock.now += self.draw.choice([31, 200])  # leases end; groups reach their deadline
        for lease in self.ledger.claim_rollouts("w", self.draw.randint(1, 4), 30.0) + self.asleep[:1]:
            status = self.draw.choice([Status.COMPLETED] * 5 + [Status.ERROR_ENGINE, Status.TRUNCATED_TIME])
            if self.draw.random() < 0.1:
                self.asleep.append(lease)
                continue
            version = self.ledger.latest_policy().version
            try:
                finish(self.ledger, lease, reward=float(self.draw.random() < 0.5), status=status, versions=(version,))
            except LeaseLostError:
                assert lease in self.asleep
        self.asleep = self.asleep[-3:]


@settings(max_examples=4, deadline=None)
@given(max_lag=st.integers(0, 2), seed=st.integers(0, 2**32))
def test_a_real_run_reaches_its_end(max_lag, seed):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), max_lag, random.Random(seed))
        run.go()
        totals = run.ledger.totals()
        assert run.ledger.train_step() == 4
        assert (totals.lost, totals.trained_twice) == (0, 0)
        assert max(run.ledger.lag_histogram()) <= max_lag
        assert all(totals.dropped_by_reason)
        run.ledger.close()
