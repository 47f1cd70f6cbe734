"""Admission: bounded staleness without deadlock, whatever is dropped, fails, dies or is restarted."""

import random
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from samples import FakeClock, finish, manager_of, recipe

from quartet.config import Recipe
from quartet.data.admission import capacity
from quartet.data.database import drop_database
from quartet.data.ledger import Ledger
from quartet.data.manager import DataManager
from quartet.errors import LeaseLostError
from quartet.types import RolloutLease, Status
from tests.postgresql import needs_postgresql, server_url

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
    """A whole run on a real ledger and a real data manager; `draw` decides what goes wrong, and what takes long."""

    def __init__(self, folder: Path, recipe: Recipe, draw: random.Random, url: str) -> None:
        self.clock, self.draw, self.recipe = FakeClock(), draw, recipe
        self.ledger = Ledger.create(folder / "run", clock=self.clock, url=url)
        self.ledger.register_initial_policy("p0")
        self.served = 0
        self.running: list[tuple[RolloutLease, int]] = []
        """Leases at work or asleep, and the version that the engine served when they began."""
        self.lags: Counter[int] = Counter()
        """Of committed members, rolled back ones included."""
        self.rolled_back = False

    def go(self) -> None:
        """Run until training is over."""
        while self.ledger.stop_reason() is None:
            with manager_of(self.recipe, self.ledger, self.clock) as manager:  # a restart of the data manager
                for _ in range(self.draw.randint(1, 10)):
                    while manager.tick():
                        pass
                    if self.ledger.stop_reason() is None and not self.train():
                        self.must_be_alive(manager)
                        self.work()

    def must_be_alive(self, manager: DataManager) -> None:
        """Somebody is at work, or is next: the data manager after a claim that dropped groups, and so rang for it."""
        sizes = self.ledger.queue_sizes()
        engine_is_next = self.recipe.admission.on_late == "wait" and not self.ledger.latest_is_settled()
        at_work = sum(sizes.rollouts.values()) > 0 or sizes.groups["claimed"] > 0
        assert at_work or engine_is_next or manager.tick(), "the run waits for nothing"

    def train(self) -> bool:
        admission, groups = self.recipe.admission, self.recipe.train.groups_per_batch
        batch = self.ledger.claim_batch("t", groups, admission.max_lag, admission.on_late, 30.0)
        if batch is None:
            return False
        if self.draw.random() < 0.3:  # the trainer dies; another one with another name comes after the lease
            self.clock.now += 31
            return False
        self.ledger.commit_batch(batch, f"p{batch.train_step}", {})
        oldest = [member.trajectory.oldest_version or 0 for group in batch.groups for member in group.members]
        self.lags.update(batch.start_version - version for version in oldest)
        if self.draw.random() < 0.03:  # a crash between two checkpoints
            self.rolled_back = True
            self.ledger.roll_back(self.ledger.train_step() - 1)
        return True

    def work(self) -> None:
        if self.draw.random() < 0.5:
            self.served = self.ledger.latest_policy().version
            self.ledger.mark_settled(self.served, serving=self.served)
        if self.draw.random() < 0.03:
            self.clock.now += self.draw.choice([31, 200])  # leases end; groups reach their deadline
        leases = self.ledger.claim_rollouts("w", self.draw.randint(1, 4), 30.0)
        self.running += [(lease, self.served) for lease in leases]
        for lease, version in list(self.running):
            if self.draw.random() > (0.02 if lease.rollout_id % 5 == 0 else 0.7):  # some are stragglers
                with suppress(LeaseLostError):
                    self.ledger.renew(lease, 30.0)
                continue
            self.running.remove((lease, version))
            status = self.draw.choice([Status.COMPLETED] * 5 + [Status.ERROR_ENGINE, Status.TRUNCATED_TIME])
            reward = float(self.draw.random() < 0.5)
            with suppress(LeaseLostError):
                finish(self.ledger, lease, reward=reward, status=status, versions=(version, self.served))


@pytest.mark.parametrize("where", ["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
@pytest.mark.parametrize("on_late", ["mask", "wait", "drop"])
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])  # a shorter run is not a simpler one
@given(
    max_lag=st.integers(0, 2),
    groups_per_batch=st.integers(1, 3),
    size=st.integers(2, 4),
    sessions=st.integers(1, 8),
    seed=st.integers(0, 2**32),
)
@example(max_lag=0, groups_per_batch=3, size=4, sessions=1, seed=4595384)  # a claim drops one group of three
def test_a_real_run_reaches_its_end(where, on_late, max_lag, groups_per_batch, size, sessions, seed):
    knobs = recipe(
        env={"sessions": sessions},
        control={"rollouts_per_group": size},
        admission={"max_lag": max_lag, "on_late": on_late},
        train={"groups_per_batch": groups_per_batch, "max_train_steps": 12},
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), knobs, random.Random(seed), "" if where == "sqlite" else server_url())
        run.go()
        totals = run.ledger.totals()
        assert run.ledger.train_step() == 12
        assert (totals.lost, totals.trained_twice) == (0, 0)
        assert all(totals.dropped_by_reason)
        if on_late == "drop" or (on_late == "wait" and not run.rolled_back):
            assert max(run.lags) <= max_lag
        if on_late == "wait" and not run.rolled_back:
            assert "over_lag" not in totals.dropped_by_reason
        run.ledger.close()
        drop_database(Path(folder) / "run")
