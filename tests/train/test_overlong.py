"""Long and truncated rollouts: DAPO's soft punishment before credit, and truncated members that leave the loss only."""

from collections import Counter

import numpy as np
import pytest
from credit_cases import child
from msgspec.structs import replace
from test_majority_vote import MAJORITY_EAR
from tiny_batches import make_batch, make_call, make_trajectory

from quartet.errors import ConfigError
from quartet.train.assign import assign, credits_of
from quartet.train.packing.branches import Branch, pack_batch
from quartet.types import Batch, Status, Trajectory


def rollout(num_tokens: int, reward: float, status: Status = Status.COMPLETED) -> Trajectory:
    """Two calls, the first of one token."""
    calls = [make_call([1], [2]), make_call([3], [4] * (num_tokens - 1))]
    return make_trajectory(calls, reward, status)


def credited(recipe, batch: Batch, **train: object) -> list[Branch]:
    whole = recipe(credit="dr_grpo", train=train)
    return assign(batch, pack_batch(batch, 9), credits_of(whole), {}).branches


PENALTIES = [(10, 0.0), (16, 0.0), (18, -0.5), (19, -0.75), (20, -1.0), (40, -1.0)]


@pytest.mark.parametrize(("num_tokens", "penalty"), PENALTIES)
def test_the_penalty_falls_over_the_cache(recipe, num_tokens: int, penalty: float) -> None:
    """DAPO's figures by a thousandth: at most 20, cache 4; the other member is short and fails."""
    batch = make_batch([[rollout(num_tokens, 1.0), rollout(2, 0.0)]])
    long = credited(recipe, batch, overlong_max_tokens=20, overlong_cache_tokens=4)[1]
    assert long.advantages_L[-1] == pytest.approx((1.0 + penalty) / 2)
    assert long.returns_L[-1] == pytest.approx(1.0 + penalty)


def test_the_penalty_belongs_to_the_last_call_and_to_all_returns_before_it(recipe) -> None:
    batch = make_batch([[rollout(18, 1.0), rollout(2, 0.0)]])
    first, last, *_ = credited(recipe, batch, overlong_max_tokens=20, overlong_cache_tokens=4)
    assert first.returns_L[-1] == last.returns_L[-1] == pytest.approx(0.5)
    turns = recipe(credit="grpo_turns", train={"overlong_max_tokens": 20, "overlong_cache_tokens": 4})
    per_turn = assign(batch, pack_batch(batch, 9), credits_of(turns), {}).branches
    assert per_turn[0].advantages_L[-1] != per_turn[1].advantages_L[-1], "the turns' own rewards are 0 and 0.5"


def test_a_forked_rollout_pays_for_the_tokens_that_it_borrows(recipe) -> None:
    """The child has 4 tokens of its own after 14 of its parent: 18 in all, as long as a rollout without a parent."""
    shared = make_call([1], [2] * 14)
    borrowed = replace(shared, borrowed=len(shared.prompt_ids) + len(shared.response_ids))
    child = make_trajectory([borrowed, make_call([3], [4] * 4)], 1.0)
    batch = make_batch([[child, rollout(2, 0.0)]])
    own, *_ = credited(recipe, batch, overlong_max_tokens=20, overlong_cache_tokens=4)
    assert own.num_trained_tokens == 4
    assert own.returns_L[-1] == pytest.approx(0.5)


def test_without_the_setting_length_is_free(recipe) -> None:
    batch = make_batch([[rollout(400, 1.0), rollout(2, 0.0)]])
    assert credited(recipe, batch)[1].advantages_L[-1] == pytest.approx(0.5)


def test_a_cache_above_the_limit_is_refused(recipe) -> None:
    with pytest.raises(ConfigError, match="overlong_cache_tokens is above"):
        recipe(train={"overlong_max_tokens": 20})


def test_a_penalty_that_no_credit_reads_is_refused(recipe) -> None:
    penalty = {"overlong_max_tokens": 20, "overlong_cache_tokens": 4}
    distillation = {"name": "distillation", "teacher": "/t"}
    for credit in (MAJORITY_EAR, {"name": "majority_vote"}, distillation):
        with pytest.raises(ConfigError, match=f"which the credit {credit['name']} does not read"):
            recipe(credit=credit, filters=[], train=penalty)
    for credit in ({"name": "ear"}, distillation | {"reward_weight": 0.5}):
        assert recipe(credit=credit, filters=[], train=penalty).train.overlong_max_tokens == 20


@pytest.mark.parametrize("status", [Status.TRUNCATED_TURNS, Status.TRUNCATED_TOKENS])
def test_a_truncated_rollout_leaves_the_loss_and_stays_in_the_baseline(recipe, status: Status) -> None:
    """Rewards 1, 0, 0: the mean is 1/3 with or without the mask."""
    batch = make_batch([[rollout(3, 1.0), rollout(3, 0.0, status), rollout(3, 0.0)]])
    plain, masked = credited(recipe, batch), credited(recipe, batch, mask_truncated=True)
    assert [branch.trajectory_index for branch in masked] == [0, 0, 2, 2]
    assert [branch.advantages_L.tolist() for branch in masked] == [
        branch.advantages_L.tolist() for branch in plain if branch.trajectory_index != 1
    ]
    assert masked[0].advantages_L[-1] == pytest.approx(2 / 3)


@pytest.mark.parametrize(("cut_child", "trained"), [(False, {0: 1, 1: 4, 2: 2}), (True, {2: 2})])
def test_calls_that_a_truncated_parent_shares_with_a_fork_are_trained_for_the_fork(
    recipe, cut_child: bool, trained: dict[int, int]
) -> None:
    """The child shares the parent's first call, of one token, and has four tokens of its own."""
    parent = rollout(3, 0.0, Status.TRUNCATED_TURNS)
    forked = child(parent, 0, 1.0, 0.0)
    forked = replace(forked, status=Status.TRUNCATED_TURNS if cut_child else Status.COMPLETED)
    found: Counter[int] = Counter()
    for branch in credited(recipe, make_batch([[parent, forked, rollout(2, 0.0)]]), mask_truncated=True):
        found[branch.trajectory_index] += branch.num_trained_tokens
    assert found == trained


def test_a_batch_of_truncated_rollouts_trains_nothing(recipe) -> None:
    batch = make_batch([[rollout(3, float(number), Status.TRUNCATED_TURNS) for number in range(2)]])
    assert credited(recipe, batch, mask_truncated=True) == []
    assert np.sum([branch.num_trained_tokens for branch in credited(recipe, batch)]) == 6
