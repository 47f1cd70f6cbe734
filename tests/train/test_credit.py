"""Credit against numbers worked out by hand, and its invariants, on batches packed as the trainer packs them."""

import inspect
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from credit_cases import credit_of, member, of_calls, of_rewards
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tiny_batches import make_batch, make_call, make_trajectory

from quartet.config import Credit
from quartet.errors import ConfigError
from quartet.recipe.file import parse_recipe
from quartet.registry import build, find, names
from quartet.train.aggregation import AGGREGATIONS
from quartet.train.assign import assign
from quartet.train.credit import base
from quartet.train.credit_batch import CreditBatch
from quartet.train.packing.branches import pack_batch
from quartet.types import Batch, Fork, ReplayRule, Trajectory

OVER_BATCHES = ("lite_ppo", "mars", "reinforce_plus_plus_baseline")
OF_GROUPS = (
    *("grpo", "grpo_steps", "rloo", "dr_grpo", "grpo_turns", "max_rl", "pass_at_k", "dars", "ui_s1", "grpo_roles"),
    *("dr_mas", "arpo", "branch_grpo", "tree_rl", "xrpo"),
)
COMPARING = OF_GROUPS + OVER_BATCHES
group_rewards = st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.25, 1.0]), min_size=2, max_size=12)


def per_member(credit: Credit, *groups: list[Trajectory]) -> np.ndarray:
    return np.array([advantages[0] for advantages in of_calls(credit, *groups)])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [1.5, -0.5, -0.5, -0.5]),
        ("grpo_steps", [1.5, -0.5, -0.5, -0.5]),
        ("grpo_turns", [1.5, -0.5, -0.5, -0.5]),
        ("lite_ppo", [1.5, -0.5, -0.5, -0.5]),
        ("rloo", [1.0, -1 / 3, -1 / 3, -1 / 3]),
        ("dr_grpo", [0.75, -0.25, -0.25, -0.25]),
        ("reinforce", [1, 0, 0, 0]),
        ("reinforce_plus_plus_baseline", np.array([0.75, -0.25, -0.25, -0.25]) / np.sqrt(1.5 / 7)),
        ("max_rl", [3, -1, -1, -1]),
        ("pass_at_k", [4, 0, 0, 0]),
        ("dars", [1, -1 / 3, -1 / 3, -1 / 3]),
        ("ui_s1", [3, -1, -1, -1]),
        ("mars", [1.5, -0.5, -0.5, -0.5]),
        ("grpo_roles", [1.5, -0.5, -0.5, -0.5]),
        ("dr_mas", [1.5, -0.5, -0.5, -0.5]),
        ("arpo", [1.5, -0.5, -0.5, -0.5]),
        ("branch_grpo", [1.5, -0.5, -0.5, -0.5]),
        ("tree_rl", [1.5, -0.5, -0.5, -0.5]),
        ("xrpo", [1.5, -0.5, -0.5, -0.5]),
    ],
)
def test_one_success_in_four(name: str, expected: Sequence[float]) -> None:
    np.testing.assert_allclose(of_rewards(Credit(name=name), [1, 0, 0, 0]), expected, atol=1e-5)


def test_epsilon_stands_beside_the_standard_deviation() -> None:
    halves = of_rewards(credit_of("grpo", epsilon=0.5), [1, 0, 0, 0])
    np.testing.assert_allclose(halves, [0.75, -0.25, -0.25, -0.25])  # std = 0.5 exactly


def test_negative_weight_scales_advantages_below_zero() -> None:
    quarter = of_rewards(credit_of("grpo", negative_weight=0.25), [1, 0, 0, 0])
    np.testing.assert_allclose(quarter, [1.5, -0.125, -0.125, -0.125], atol=1e-5)


@pytest.mark.parametrize("name", COMPARING)
@settings(max_examples=10)
@given(reward=st.floats(-1e3, 1e3), size=st.integers(1, 16))
def test_equal_rewards_and_a_group_of_one_give_zero(name: str, reward: float, size: int) -> None:
    assert np.abs(of_rewards(Credit(name=name), [reward] * size)).max() <= 1e-12 * abs(reward)


def test_rloo_is_exactly_zero_where_the_sum_of_equal_rewards_is_rounded() -> None:
    assert not of_rewards(Credit(name="rloo"), [0.3] * 3).any()


@pytest.mark.parametrize("name", COMPARING)
@settings(max_examples=10)
@given(rewards=group_rewards, random=st.randoms())
def test_permuting_members_permutes_advantages(name: str, rewards: list[float], random) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    straight, shuffled = (of_rewards(Credit(name=name), values) for values in (rewards, [rewards[i] for i in order]))
    np.testing.assert_allclose(shuffled, straight[order], atol=1e-6)


@pytest.mark.parametrize("name", [name for name in COMPARING if name != "pass_at_k"])
@settings(max_examples=10)
@given(rewards=group_rewards)
def test_advantages_of_a_group_of_single_turns_sum_to_zero(name: str, rewards: list[float]) -> None:
    assert abs(of_rewards(Credit(name=name), rewards).sum()) < 1e-5


@pytest.mark.parametrize("name", OF_GROUPS)
@settings(max_examples=10)
@given(rewards=group_rewards)
def test_another_group_beside_it_changes_nothing(name: str, rewards: list[float]) -> None:
    alone = of_rewards(Credit(name=name), rewards)
    beside = of_rewards(Credit(name=name), [5.0, -3.0, 1.0], rewards)
    np.testing.assert_array_equal(beside[3:], alone)


def test_over_steps_a_long_failure_weighs_more_in_the_baseline() -> None:
    """Steps 1 1 0 0 0 0 0 0: mean 1/4, unbiased standard deviation sqrt(1.5 / 7)."""
    advantages = per_member(Credit(name="grpo_steps"), [member(0.0, 1.0), member(*[0.0] * 6)])
    np.testing.assert_allclose(advantages, np.array([0.75, -0.25]) / np.sqrt(1.5 / 7), atol=1e-5)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 12)), min_size=2, max_size=12))
def test_over_steps_the_sum_over_steps_is_zero(members: list[tuple[float, int]]) -> None:
    group = [member(*[0.0] * (calls - 1), reward) for reward, calls in members]
    advantages_N = per_member(Credit(name="grpo_steps"), group)
    assert abs((np.array([calls for _, calls in members]) * advantages_N).sum()) < 1e-4


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.integers(1, 5))
def test_over_steps_of_equal_length_only_the_degrees_of_freedom_differ(rewards: list[float], length: int) -> None:
    group, size = [member(*[0.0] * (length - 1), reward) for reward in rewards], len(rewards)
    freedom = np.sqrt((size * length - 1) / (length * (size - 1)))
    plain, steps = (per_member(Credit(name=name), group) for name in ("grpo", "grpo_steps"))
    np.testing.assert_allclose(steps, freedom * plain, rtol=1e-3, atol=1e-6)


def test_rloo_is_the_unbiased_one() -> None:
    """Over all outcomes of four draws from two arms, of which one pays with p = 0.3: the expected gradient with respect
    to the logit is p (1 - p) = 0.21. The group's own mean gives three quarters of it."""
    p, expected = 0.3, {"rloo": 0.21, "dr_grpo": 0.75 * 0.21}
    for name, gradient in expected.items():
        found = 0.0
        for successes in range(16):
            rewards = [float(successes >> draw & 1) for draw in range(4)]
            probability = np.prod([p if reward else 1 - p for reward in rewards])
            scores = np.array(rewards) - p  # d log pi / d logit of each draw
            found += probability * (of_rewards(Credit(name=name), rewards) * scores).mean()
        assert found == pytest.approx(gradient, rel=1e-5)


def test_the_batch_s_standard_deviation_does_not_blow_up_a_group_that_hardly_differs() -> None:
    """The check of the reference: seven rewards of 1 and one of 0.99, beside a group of four successes in eight."""
    close, mixed = [1.0] * 7 + [0.99], [1.0, 0.0] * 4
    assert of_rewards(Credit(name="grpo"), close, mixed)[7] == pytest.approx(-2.475, abs=1e-3)
    assert of_rewards(Credit(name="lite_ppo"), close, mixed)[7] == pytest.approx(-0.0196, abs=1e-4)


def test_dr_grpo_and_token_mean_weigh_a_long_failure_s_tokens_like_a_short_one_s() -> None:
    """Failures of 10 and of 100 tokens: their tokens weigh 1 and 0.1 with `sequence_mean`, alike with `token_mean`."""
    group = [make_trajectory([make_call([1], range(length))], float(length == 1)) for length in (1, 10, 100)]
    batch = make_batch([group])
    branches = assign(batch, pack_batch(batch, 9), [build(Credit(name="dr_grpo"))], {}).branches
    per_token = {
        name: [weight * branch.advantages_L[-1] for weight, branch in zip(weigh(branches), branches, strict=True)]
        for name, weigh in AGGREGATIONS.items()
    }
    assert per_token["token_mean"][1] == per_token["token_mean"][2] < 0
    assert per_token["sequence_mean"][1] == pytest.approx(10 * per_token["sequence_mean"][2])


def test_a_turn_is_worth_the_normalised_rewards_from_it_on() -> None:
    """Rewards 1 0 | 0 1 over four turns: mean 1/2, unbiased standard deviation sqrt(1/3), normalised +-sqrt(3)/2."""
    half = np.sqrt(3) / 2
    first, second = of_calls(Credit(name="grpo_turns"), [member(1.0, 0.0), member(0.0, 1.0)])
    assert first == pytest.approx([0.0, -half], abs=1e-5)
    assert second == pytest.approx([0.0, half], abs=1e-5)


def test_a_reward_beside_the_turns_counts_as_the_last_turn_s() -> None:
    with_judge = of_calls(Credit(name="grpo_turns"), [member(1.0, 0.0, beside=2.0), member(0.0, 1.0)])
    as_turn = of_calls(Credit(name="grpo_turns"), [member(1.0, 2.0), member(0.0, 1.0)])
    assert with_judge == as_turn


class Spy(base.Credit):
    """Keeps the batch it was asked about."""

    seen: CreditBatch

    def assign(self, batch: CreditBatch) -> None:
        Spy.seen = batch


def spied(batch: Batch, passes: dict[str, list[np.ndarray]] | None = None, max_lag: int = 9) -> CreditBatch:
    assign(batch, pack_batch(batch, max_lag), [Spy(None)], passes or {})
    return Spy.seen


def test_credit_sees_group_member_and_call_of_each_token_in_the_order_of_sampling() -> None:
    """The first member's calls take turns between two conversations, so its branches do not hold them in order."""
    calls = [make_call([1], [2]), make_call([9], [8, 7]), make_call([1, 2, 3], [4])]
    group = [make_trajectory(calls, 1.0), make_trajectory([make_call([5], [6])], 0.0)]
    seen = spied(make_batch([group, [make_trajectory([make_call([5], [6])], 3.0)]]))
    assert seen.members_C.tolist() == [0, 0, 0, 1, 2]
    assert seen.groups_N.tolist() == [0, 0, 1]
    assert seen.calls_T.tolist() == [0, 1, 1, 2, 3, 4]
    assert seen.members_T.tolist() == [0, 0, 0, 0, 1, 2]
    assert seen.rewards_N.tolist() == [1.0, 0.0, 3.0]
    assert (seen.roles_N, seen.parents_N.tolist()) == (["agent"] * 3, [-1] * 3)
    assert seen.logprobs_T.tolist() == [-1.0] * 6


def test_results_of_passes_lie_at_their_tokens_and_nowhere_where_a_token_is_too_old() -> None:
    old = make_call([5], [6, 7], version=-9)
    old.response.versions[1] = 0
    batch = make_batch([[make_trajectory([make_call([1], [2, 3]), old], 1.0)]])
    seen = spied(batch, {"entropies": [np.array([0.1, 0.2]), np.array([0.4])]}, max_lag=2)
    assert seen.mask_T.tolist() == [True, True, False, True]
    assert seen.entropies_T is not None
    np.testing.assert_array_equal(seen.entropies_T, [0.1, 0.2, np.nan, 0.4])


def test_a_return_is_the_sum_of_the_rewards_from_the_call_on() -> None:
    batch = make_batch([[member(1.0, 2.0, 4.0, beside=8.0)]])
    assert spied(batch).returns_T.tolist() == [15.0, 15.0, 14.0, 14.0, 12.0, 12.0]
    branches = assign(batch, pack_batch(batch, 9), [build(Credit())], {}).branches
    assert [branch.returns_L[-1] for branch in branches] == [15.0, 14.0, 12.0]


def test_stored_members_are_known_and_a_fork_knows_its_parent() -> None:
    parent, child = (make_trajectory([make_call([1], [2])], reward) for reward in (1.0, 0.0))
    batch = make_batch([[parent, replace(child, parent=Fork(rollout_id=0, call_index=0))]])
    group = batch.groups[0]
    stored = replace(group.members[1], rollout_id=7, replay=ReplayRule.STORED)
    seen = spied(replace(batch, groups=[replace(group, members=[*group.members, stored])]))
    assert seen.parents_N.tolist() == [-1, 0, -1]
    assert seen.replayed_N.tolist() == [False, False, True]


def test_a_fork_names_the_part_of_its_parent() -> None:
    solver, judge, child = (make_trajectory([make_call([1], [2])], reward) for reward in (1.0, 0.0, 0.5))
    judge = replace(judge, role="judge", part="judge")
    child = replace(child, parent=Fork(rollout_id=0, part="judge", call_index=0))
    batch = make_batch([[solver, judge, child]])
    group = batch.groups[0]
    members = [group.members[0], replace(group.members[1], rollout_id=0), group.members[2]]
    seen = spied(replace(batch, groups=[replace(group, members=members)]))
    assert (seen.roles_N, seen.parents_N.tolist()) == (["agent", "judge", "agent"], [-1, -1, 1])


def test_the_mask_leaves_tokens_out_and_brings_none_back() -> None:
    class All(Spy):
        def assign(self, batch: CreditBatch) -> None:
            batch.mask_T[:] = True
            batch.mask_T[batch.members_T == 1] = False

    old = make_call([5], [6], version=-9)
    batch = make_batch(
        [[make_trajectory([make_call([5], [4]), old], 1.0), make_trajectory([make_call([5], [4])], 0.0)]]
    )
    assigned = assign(batch, pack_batch(batch, 2), [All(None)], {})
    assert [(branch.trajectory_index, branch.num_trained_tokens) for branch in assigned.branches] == [(0, 1)]


def test_a_pass_that_cannot_be_made_is_refused_when_the_recipe_is_read() -> None:
    whole = {"name": "t", "model": {"path": "none"}, "env": {"name": "bandit"}}
    with pytest.raises(ConfigError, match=r"credit: the credit NeedsValues needs values, but no loss term"):
        parse_recipe(whole | {"credit": "test_credit:NeedsValues"}, "t")
    with pytest.raises(ConfigError, match="unknown pass 'entropy'"):
        parse_recipe(whole | {"credit": "test_credit:NeedsNonsense"}, "t")


class NeedsValues(Spy):
    needs = frozenset({"values"})


class NeedsNonsense(Spy):
    needs = frozenset({"entropy"})


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="grpo"):
        build(Credit(name="gropo"))


@pytest.mark.parametrize("name", names("credit"))
def test_a_credit_is_one_file_of_at_most_50_lines_with_a_source(name: str) -> None:
    part = find("credit", name)
    assert len(Path(inspect.getfile(part)).read_text().splitlines()) <= 50
    assert part.source
