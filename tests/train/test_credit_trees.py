"""Credits of forked rollouts, on the tree of the reference: two first calls, each with two second ones."""

import numpy as np
import pytest
from credit_cases import child, credited, member, of_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tiny_batches import make_batch

from quartet.config import Credit
from quartet.train.call_tree import CallTree
from quartet.types import Fork, Trajectory

HALF = np.sqrt(0.5)
TREES = ("arpo", "branch_grpo", "tree_rl")


def tree() -> list[Trajectory]:
    """Leaves with rewards 1 0 | 0 0; the second and the fourth are forked after the first call."""
    first, third = member(0.0, 1.0), member(0.0, 0.0)
    return [first, child(first, 0, 0.0), third, child(third, 0, 0.0, rollout_id=2)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("arpo", [[0.5, 1.5], [-0.5], [-0.5, -0.5], [-0.5]]),
        ("branch_grpo", [[HALF, 1.5], [-0.5], [-HALF, -0.5], [-0.5]]),
        ("tree_rl", [[HALF / 2, 1.25], [-0.75], [-HALF / 2, -0.25], [-0.25]]),
    ],
)
def test_calls_of_a_binary_tree(name: str, expected: list[list[float]]) -> None:
    """arpo: means of 1.5 and -0.5. branch_grpo: V 0.5 0 and 1 0 0 0. tree_rl: (2 V - root - before) / sqrt(leaves)."""
    for calls, wanted in zip(of_calls(Credit(name=name), tree()), expected, strict=True):
        assert calls == pytest.approx(wanted, abs=1e-5)


def test_a_call_that_a_child_of_a_child_shares_belongs_to_the_first_member() -> None:
    first = member(0.0, 0.0, 1.0)
    second = child(first, 1, 0.0, 0.5)
    batch = make_batch([[first, second, child(second, 0, 2.0, rollout_id=1), child(second, 2, 4.0, rollout_id=1)]])
    kept = CallTree(credited(Credit(), batch))
    assert kept.nodes_C.tolist() == [0, 1, 2, 0, 1, 5, 6, 0, 8, 0, 1, 5, 12]
    assert kept.leaves_C.tolist() == [4, 3, 1, 4, 3, 2, 1, 4, 1, 4, 3, 2, 1]
    means = kept.leaf_means(np.array([1.0, 0.5, 2.0, 4.0]))
    assert means[[0, 1, 5, 12]].tolist() == [7.5 / 4, 5.5 / 3, 4.5 / 2, 4.0]


@pytest.mark.parametrize("name", TREES)
def test_a_child_whose_parent_is_not_there_is_a_rollout_of_its_own(name: str) -> None:
    first, other = member(0.0, 1.0), member(0.0, 0.0)
    orphan = child(other, 0, 0.0, rollout_id=77)
    apart = replace(orphan, parent=None)
    assert of_calls(Credit(name=name), [first, orphan]) == of_calls(Credit(name=name), [first, apart])
    assert orphan.parent == Fork(rollout_id=77, call_index=0)


@pytest.mark.parametrize("name", TREES)
@settings(max_examples=5, deadline=None)
@given(rewards=st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=6), length=st.integers(1, 3))
def test_without_forks_it_is_an_advantage_of_rollouts(name: str, rewards: list[float], length: int) -> None:
    group = [member(*[0.0] * (length - 1), reward) for reward in rewards]
    found = np.array(of_calls(Credit(name=name), group))
    base = np.array(of_calls(Credit(name="dr_grpo" if name == "tree_rl" else "grpo"), group))
    factors = np.array([2.0] + [1.0] * (length - 1)) if name == "tree_rl" else 1.0
    np.testing.assert_allclose(found, base * factors, atol=1e-4)


def test_the_longest_rollout_is_compared_up_to_the_length_of_the_second() -> None:
    long, short = of_calls(Credit(name="branch_grpo"), [member(0.0, 0.0, 1.0), member(0.0, 0.0)])
    assert long == pytest.approx([HALF, HALF, 0.0]) and short == pytest.approx([-HALF, -HALF])


def spoken(rollout: Trajectory, *probabilities: float) -> Trajectory:
    """Return a rollout whose own calls were sampled with these probabilities, at their first token."""
    own = iter(probabilities)
    calls = [
        call
        if len(call.own_response) == 0
        else replace(call, response=replace(call.response, logprobs=[np.log(next(own)), 0.0]))
        for call in rollout.calls
    ]
    return replace(rollout, calls=calls)


def test_likely_fusion_weighs_the_next_calls_by_their_probability() -> None:
    """Two calls with probabilities 0.75 and 0.25 and rewards 1 and 0 follow the first: 0.75 instead of 0.5."""
    first = spoken(member(0.0, 1.0), 0.5, 0.75)
    batch = make_batch([[first, spoken(child(first, 0, 0.0), 0.25), spoken(member(0.0, 0.5), 0.5, 0.5)]])
    seen = credited(Credit(), batch)
    assert CallTree(seen).likely_means(seen) == pytest.approx([0.75, 1.0, 0.75, 0.0, 0.5, 0.5])
    found = of_calls(
        Credit.model_validate({"name": "branch_grpo", "fusion": "likely"}),
        [first, *[one.trajectory for one in batch.groups[0].members[1:]]],
    )
    assert found[0][0] == pytest.approx(HALF) and found[2][0] == pytest.approx(-HALF)


def test_likely_fusion_weighs_the_next_calls_equally_if_a_probability_is_unknown() -> None:
    """The second child was guided, so its recorded log-probs belong to another prompt than the trained one."""
    first = spoken(member(0.0, 1.0), 0.5, 0.75)
    guided = spoken(child(first, 0, 0.0), 0.25)
    last = guided.calls[-1]
    guided = replace(guided, calls=[*guided.calls[:-1], replace(last, train_prompt_ids=[*last.prompt_ids, 1])])
    seen = credited(Credit(), make_batch([[first, guided]]))
    assert CallTree(seen).likely_means(seen) == pytest.approx([0.5, 1.0, 0.5, 0.0])


def test_pruning_leaves_calls_untrained_and_changes_no_advantage() -> None:
    whole = credited(Credit(name="branch_grpo"), make_batch([tree()]))
    width = Credit.model_validate({"name": "branch_grpo", "keep_best": 0.25, "keep_worst": 0.25})
    pruned = credited(width, make_batch([tree()]))
    np.testing.assert_array_equal(pruned.advantages_T, whole.advantages_T)
    assert sorted({*pruned.calls_T[pruned.mask_T]}) == [0, 1, 3, 4], "first calls, the best and the worst last one"
    deep = credited(Credit.model_validate({"name": "branch_grpo", "untrained_calls": [0]}), make_batch([tree()]))
    assert {*deep.calls_T[deep.mask_T]} == {*whole.calls_T[whole.mask_T]} - {0, 4}
