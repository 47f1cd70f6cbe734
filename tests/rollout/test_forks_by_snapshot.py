"""Children that begin in the stored state of their parent's environment, which answers no two episodes alike."""

import asyncio
from collections import Counter
from random import SystemRandom

import msgspec
import pytest
from msgspec.structs import replace
from test_forking import bench_of, left_then_right, members, recipe_of
from worker_bench import Bench

from quartet.env.environment.bandit import Bandit, BanditEnv
from quartet.env.guarded import GuardedPool
from quartet.env.session_pool import SessionPool
from quartet.errors import ConfigError, DivergedError, EnvError
from quartet.exchange.stored import Selection, stored_trajectories
from quartet.manager.control.base import RolloutAllocator
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals, status_counts
from quartet.rollout.episode import actions_of
from quartet.rollout.recorded_env import RecordedEnv
from quartet.runtime.check.training import check_training
from quartet.types import Fork, Observation, Picture, Status, Task

TASK = Task(env="bandit", family="fixed", seed=1, params={"turns": 4})


class Dealer(BanditEnv):
    """Deals a card at random with every page, so that only the stored state shows a child the same."""

    async def reset(self, task):
        return self._deal(await super().reset(task))

    async def step(self, action):
        self._episodes["steps"] += 1
        result = await super().step(action)
        return replace(result, observation=self._deal(result.observation))

    async def snapshot(self):
        return msgspec.msgpack.encode((self._pulls, self._page))

    async def restore(self, task, snapshot):
        await super().reset(task)
        self._pulls, self._page = msgspec.msgpack.decode(snapshot, type=tuple[list[bool], Observation])
        return self._page

    def _deal(self, page):
        card = f"card {SystemRandom().getrandbits(64)}"
        self._page = replace(page, text=f"{card}\n{page.text}", pictures=[Picture(data=card.encode())])
        return self._page


class Dealing(Bandit):
    """Its sessions store their state."""

    deterministic, snapshots = False, True


def dealing(folder, session: type[Dealer] = Dealer, **fields) -> Bench:
    """A bench whose `dealt` counts episodes and steps."""
    dealt: Counter[str] = Counter()
    pool = GuardedPool(SessionPool(lambda: session(dealt), 3))
    sections = {"env": {"name": "test_forks_by_snapshot:Dealing", "sessions": 3}}
    bench = bench_of(folder, left_then_right, pool=pool, sections=sections, **fields)
    bench.dealt = dealt
    return bench


def texts(trajectory) -> list[str]:
    return [turn.observation.text for turn in trajectory.turns]


async def test_children_begin_in_the_state_of_their_parent(tmp_path):
    bench = dealing(tmp_path)
    group_id = bench.admit(turns=3)
    assert await bench.worker.run_queued() == 3
    parent, *children = members(bench, group_id)
    for child in children:
        assert child.parent == Fork(rollout_id=1, call_index=0)
        assert actions_of(child.turns) == ["click left [1]", "click right [2]", "click right [2]"]
        assert texts(child)[:2] == texts(parent)[:2] and child.calls[1].prompt_ids == parent.calls[1].prompt_ids
        assert child.reward == 1 / 3, "what the parent did counts"
    assert len({texts(one)[2] for one in (parent, *children)}) == 3, "each went its own way"
    assert bench.dealt["steps"] == 3 + 2 + 2, "what is shared was done once"
    assert check_ledger(bench.ledger, max_lag=0).findings == []
    stored = stored_trajectories(bench.ledger, Selection(screenshots=True))
    shown = [[turn.observation.pictures[0].data.decode() for turn in one.trajectory.turns] for one in stored]
    assert shown[1][:2] == shown[0][:2] and shown[1][2] != shown[0][2]


async def test_children_of_children_begin_in_the_states_of_theirs(tmp_path):
    bench = dealing(tmp_path, brancher="BeforeEveryCall")
    group_id = bench.admit(turns=4)
    assert await bench.worker.run_queued() == 1 + 8
    found = members(bench, group_id)
    assert any(one.parent and one.parent.rollout_id != 1 for one in found)
    for one in found[1:]:
        parent, shared = found[one.parent.rollout_id - 1], one.parent.call_index + 2
        assert texts(one)[:shared] == texts(parent)[:shared]


async def played_twice(session: RecordedEnv, last: str) -> list[str]:
    """Try, reset, and try again: the pages that a loop with two episodes is shown."""
    pages = [await session.reset(TASK)]
    pages.append((await session.step("click left [1]")).observation)
    pages.append(await session.reset(TASK))
    pages.append((await session.step(last)).observation)
    return [page.text for page in pages]


async def test_a_loop_that_resets_again_has_children_too():
    parent = RecordedEnv(Dealer(Counter()))
    seen = await played_twice(parent, "click right [2]")
    child = RecordedEnv(Dealer(Counter()), await parent.state())
    assert await played_twice(child, "click right [2]") == seen
    assert (await child.step("click left [1]")).observation.text not in seen
    astray = RecordedEnv(Dealer(Counter()), await parent.state())
    with pytest.raises(DivergedError, match=r"'click left \[1\]' where its parent requested the action 'click right"):
        await played_twice(astray, "click left [1]")


class Slow(Dealer):
    """Notices a request that comes while another one is at work."""

    busy = False

    async def step(self, action):
        assert not self.busy
        self.busy = True
        await asyncio.sleep(0.01)
        self.busy = False
        return await super().step(action)

    async def snapshot(self):
        assert not self.busy
        return await super().snapshot()


async def test_a_state_is_stored_between_two_steps_of_a_loop_with_parallel_calls():
    session = RecordedEnv(Slow(Counter()))
    await session.reset(TASK)
    steps = [session.step("click left [1]") for _ in range(2)]
    _, state, _ = await asyncio.gather(steps[0], session.state(), steps[1])
    assert [move.action for move in state.moves] == [None, "click left [1]"]


class Forgetful(Dealer):
    """Restores a state, and shows another page."""

    async def restore(self, task, snapshot):
        return self._deal(await super().restore(task, snapshot))


class Refusing(Dealer):
    """Cannot read a state of its own."""

    async def restore(self, task, snapshot):
        return await super().restore(task, b"")


@pytest.mark.parametrize("session", [Forgetful, Refusing])
async def test_a_state_that_cannot_be_restored_is_no_failure_to_be_retried(tmp_path, session):
    bench = dealing(tmp_path, session)
    bench.admit(turns=3)
    await bench.worker.run_queued()
    assert status_counts(bench.ledger) == {"completed": 1, "diverged": 2}
    child = bench.ledger.trajectories.load_final(2)
    assert child is not None and child.status is Status.DIVERGED and child.rewards == {} and "parent" in child.error


class Interrupted(Dealer):
    """Its machine is gone when the first child begins."""

    async def restore(self, task, snapshot):
        self._episodes["restored"] += 1
        if self._episodes["restored"] == 1:
            raise EnvError("the machine is gone")
        return await super().restore(task, snapshot)


async def test_a_child_whose_machine_dies_begins_again_from_the_state(tmp_path):
    bench = dealing(tmp_path, Interrupted)
    group_id = bench.admit(turns=3)
    assert await bench.worker.run_queued() == 1 + 3
    parent, *children = members(bench, group_id)
    assert [texts(child)[:2] for child in children] == [texts(parent)[:2]] * 2
    assert run_totals(bench.ledger).attempts["retried"] == 1


async def test_a_child_that_was_recalled_begins_again_from_the_state(tmp_path):
    bench = dealing(tmp_path)
    group_id = bench.admit(turns=3)
    root = bench.worker.claim()
    await bench.worker.run_rollout(root, await bench.pool.acquire())
    child = bench.worker.claim()
    shared = bench.ledger.trajectories.load_beginning(child).calls
    earlier = bench.ledger.trajectories.load_final(1)
    bench.ledger.trajectories.recycle(child, replace(earlier, status=Status.CANCELLED, calls=shared, turns=[]), 2)
    assert await bench.worker.run_queued() == 2
    parent, *children = members(bench, group_id)
    assert [texts(one)[:2] for one in children] == [texts(parent)[:2]] * 2


class Mute(Dealer):
    """Cannot store its state."""

    async def snapshot(self):
        raise OSError("the disk of the machine is full")


async def test_a_state_that_cannot_be_stored_ends_the_parent_with_the_cause(tmp_path):
    bench = dealing(tmp_path, Mute)
    bench.admit(turns=3)
    await bench.worker.run_queued()
    assert status_counts(bench.ledger) == {"error_env": 1}
    record = bench.ledger.trajectories.load_final(1)
    assert record is not None and "Mute.snapshot raised OSError" in record.error


class ForksAtTheEnd(RolloutAllocator):
    """Forks finished rollouts."""

    may_fork = True

    def plan(self, task):
        return []


def test_snapshots_are_enough_for_a_brancher_and_not_for_an_allocator(tmp_path):
    dealing = {"name": "test_forks_by_snapshot:Dealing"}
    check_training(recipe_of(tmp_path, dealing, rollout={"brancher": "test_forking:BeforeEveryCall"}))
    with pytest.raises(ConfigError, match=r"allocator .* forks rollouts, and the environment .* not declared determin"):
        check_training(recipe_of(tmp_path, dealing, control={"allocator": "test_forks_by_snapshot:ForksAtTheEnd"}))
