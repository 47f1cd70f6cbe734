"""Forks on a real worker and ledger: children begin from their parent's tokens, by repeating its actions."""

from collections import Counter

import pytest
from msgspec.structs import replace
from worker_bench import Bench

from quartet.env.environment.bandit import Bandit, BanditEnv
from quartet.env.session_pool import SessionPool
from quartet.errors import ConfigError
from quartet.recipe.file import parse_recipe
from quartet.report.check import check_ledger
from quartet.report.totals import status_counts
from quartet.rollout.brancher.base import Brancher
from quartet.rollout.episode import actions_of
from quartet.runtime.check.training import check_training
from quartet.types import Fork, Purpose, Status


class BeforeTheSecondCall(Brancher):
    """Two children of every root, and none of children."""

    def forks(self, call, so_far):
        return 2 if len(so_far) == 1 and not so_far[0].borrowed else 0


class BeforeEveryCall(Brancher):
    """One child at every place."""

    def forks(self, call, so_far):
        return 1


def bench_of(folder, script, brancher="BeforeTheSecondCall", **fields) -> Bench:
    rollout = {"brancher": {"name": f"test_forking:{brancher}"}, "loop": "append"}
    return Bench(folder, script, **rollout, **fields)


def left_then_right(request, index):
    """A root pulls left; a child, which is asked for its own turns alone, pulls right."""
    return "click left [1]" if "/1." in request.request_id else "click right [2]"


def members(bench: Bench, group_id: int):
    bench.ledger.groups.close(group_id)
    return [member.trajectory for member in bench.ledger.groups.load(group_id).members]


async def test_children_share_the_beginning_and_sample_the_rest(tmp_path):
    bench = bench_of(tmp_path, left_then_right)
    group_id = bench.admit(turns=3)
    assert await bench.worker.run_queued() == 3
    parent, *children = members(bench, group_id)
    assert parent.parent is None and len(children) == 2
    for child in children:
        assert child.parent == Fork(rollout_id=1, call_index=0)
        assert actions_of(child.turns) == ["click left [1]", "click right [2]", "click right [2]"]
        shared = parent.calls[0]
        assert child.calls[0] == replace(shared, borrowed=len(shared.prompt_ids) + len(shared.response_ids))
        assert child.calls[1].prompt_ids == parent.calls[1].prompt_ids
        assert [call.borrowed for call in child.calls[1:]] == [len(child.calls[1].prompt_ids), 0]
        assert child.reward == 1 / 3
        assert child.num_response_tokens == sum(len(call.response_ids) for call in child.calls[1:])
        assert child.num_prompt_tokens == sum(len(call.prompt_ids) for call in child.calls[1:])
    seeds = {call.sampling.seed for one in (parent, *children) for call in one.calls}
    assert len(seeds) == 3 + 2 + 2, "a child draws its own random numbers"
    asked = [request.request_id.split("/", 1)[1] for request in bench.engine.requests]
    assert asked == ["1.1/0", "1.1/1", "1.1/2", "2.1/1", "2.1/2", "3.1/1", "3.1/2"], "what is shared is sampled once"
    assert check_ledger(bench.ledger, max_lag=0).findings == []


async def test_children_have_children_up_to_the_bound_of_the_group(tmp_path):
    bench = bench_of(tmp_path, left_then_right, brancher="BeforeEveryCall")
    group_id = bench.admit(turns=4)
    assert await bench.worker.run_queued() == 1 + 8, "max_forks_per_group"
    found = members(bench, group_id)
    places = [(one.parent.rollout_id, one.parent.call_index) for one in found if one.parent]
    assert places[:3] == [(1, 0), (1, 1), (1, 2)] and any(parent != 1 for parent, _ in places)
    for one, (parent, call_index) in zip(found[1:], places, strict=True):
        for mine, theirs in zip(one.calls[: call_index + 1], found[parent - 1].calls, strict=False):
            assert mine.borrowed == len(mine.prompt_ids) + len(mine.response_ids)
            assert mine.response_ids == theirs.response_ids


async def test_an_evaluation_is_not_forked(tmp_path):
    bench = bench_of(tmp_path, left_then_right)
    bench.admit(turns=3, purpose=Purpose.EVAL)
    assert await bench.worker.run_queued() == 1


class Forgetful(BanditEnv):
    """Shows another page in every episode, after the pull that the test says, or is over by then."""

    after, over = 1, False

    async def step(self, action):
        result = await super().step(action)
        episode = sum(self._episodes.values())
        if len(self._pulls) != self.after or episode == 1:
            return result
        page = replace(result.observation, text=f"episode {episode}")
        return replace(result, observation=page, terminated=self.over or result.terminated)


@pytest.mark.parametrize("over", [False, True], ids=["another_page", "another_end"])
async def test_a_child_that_is_shown_something_else_has_diverged(tmp_path, over):
    episodes: Counter[str] = Counter()
    session = type("Session", (Forgetful,), {"over": over})
    bench = bench_of(tmp_path, left_then_right, pool=SessionPool(lambda: session(episodes), 3))
    group_id = bench.admit(turns=3)
    await bench.worker.run_queued()
    assert status_counts(bench.ledger) == {"completed": 1, "diverged": 2}, "not tried again"
    (parent,) = members(bench, group_id)
    assert parent.parent is None, "what diverged is in no baseline"
    child = bench.ledger.trajectories.load_final(2)
    assert child is not None and child.status is Status.DIVERGED and "parent" in child.error
    assert (child.parent, child.rewards, child.num_response_tokens) == (Fork(rollout_id=1, call_index=0), {}, 0)
    assert len(bench.engine.requests) == 3, "nothing is sampled after a wrong page"


async def test_a_child_without_what_it_shares_ends_as_damaged(tmp_path):
    bench = bench_of(tmp_path, left_then_right)
    group_id = bench.admit(turns=3)
    lease = bench.worker.claim()
    assert lease is not None
    await bench.worker.run_rollout(lease, await bench.pool.acquire())
    with bench.ledger.db.write() as connection:
        connection.exec_driver_sql("DELETE FROM blobs WHERE id NOT IN (SELECT max(id) FROM blobs)")
    assert await bench.worker.run_queued() == 2
    assert status_counts(bench.ledger) == {"completed": 1, "damaged": 2}
    assert len(members(bench, group_id)) == 1


async def test_a_parent_that_lost_its_partial_forks_anew(tmp_path):
    bench = bench_of(tmp_path, left_then_right)
    bench.admit(turns=3)
    await bench.worker.run_queued()
    earlier = bench.ledger.trajectories.load_final(1)
    assert earlier is not None
    bench.admit(turns=3)
    lease = bench.worker.claim()
    assert lease is not None
    (child,) = bench.ledger.forks.add(lease, earlier.calls, 0, 1, 8)
    recalled = replace(earlier, status=Status.CANCELLED, calls=earlier.calls[:2], turns=[])
    bench.ledger.trajectories.recycle(lease, recalled, 2)
    with bench.ledger.db.write() as connection:
        connection.exec_driver_sql("DELETE FROM blobs WHERE id IN (SELECT max(id) FROM blobs)")
    assert await bench.worker.run_queued() == 3, "the rollout and two new children"
    assert status_counts(bench.ledger) == {"completed": 6, "cancelled": 1}
    assert bench.ledger.trajectories.load_final(child) is None


def recipe_of(tmp_path, env: dict, **sections):
    (tmp_path / "config.json").write_text("{}")
    data = {"name": "x", "model": {"path": str(tmp_path)}, "env": env}
    return parse_recipe(data | sections, "test")


class Undeclared(Bandit):
    """It may answer differently each time, as far as anybody knows."""

    deterministic = False


UNDECLARED = {"name": "test_forking:Undeclared"}


def test_forks_need_an_environment_that_repeats_itself(tmp_path):
    forking = {"rollout": {"brancher": "test_forking:BeforeEveryCall"}}
    check_training(recipe_of(tmp_path, {"name": "bandit"}, **forking))
    with pytest.raises(ConfigError, match="'test_forking:Undeclared' is not declared deterministic"):
        check_training(recipe_of(tmp_path, UNDECLARED, **forking))
    check_training(recipe_of(tmp_path, UNDECLARED))


def test_forks_by_entropy_need_an_engine_that_reports_it(tmp_path):
    server = {"name": "openai", "url": "http://127.0.0.1:1"}
    recipe_of(tmp_path, {"name": "bandit"}, rollout={"brancher": "entropy"})
    with pytest.raises(ConfigError, match="'entropy' needs entropies, and the engine 'openai' reports none"):
        recipe_of(tmp_path, {"name": "bandit"}, rollout={"brancher": "entropy"}, engine=server)


def test_forks_need_a_run_of_one_policy(tmp_path):
    """A child answers the first policy's calls from its parent's; another one would sample its moves anew."""
    several = {"policies": {"even": {}, "odd": {}}}
    playing = {"loop": "alternate"}
    check_training(recipe_of(tmp_path, {"name": "bandit"}, **several, rollout=playing))
    with pytest.raises(ConfigError, match="several policies"):
        forking = playing | {"brancher": "test_forking:BeforeEveryCall"}
        check_training(recipe_of(tmp_path, {"name": "bandit"}, **several, rollout=forking))


@pytest.mark.parametrize("loop", ["latest", "append"])
def test_a_loop_with_one_player_trains_one_policy(tmp_path, loop):
    with pytest.raises(ConfigError, match=f"{loop!r} only the policy 'even' acts, so 'odd' would never be trained"):
        check_training(
            recipe_of(tmp_path, {"name": "bandit"}, policies={"even": {}, "odd": {}}, rollout={"loop": loop})
        )
    frozen = {"even": {}, "odd": {"trained": False}}
    check_training(recipe_of(tmp_path, {"name": "bandit"}, policies=frozen, rollout={"loop": loop}))
