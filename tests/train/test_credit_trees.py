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
