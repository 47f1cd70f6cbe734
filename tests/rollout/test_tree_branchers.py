"""Forks of BranchGRPO at fixed calls and of ECHO at uncertain ones, and of ETTRL's allocator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_arpo_brancher import call_of

from quartet.rollout.brancher.branch_grpo import BranchGrpoBrancher
from quartet.rollout.brancher.echo import EchoBrancher


def leaves(length: int, calls: list[int], start: int = 0) -> int:
    """Return the number of rollouts of a tree; a child begins with a call whose prompt is borrowed."""
    part = BranchGrpoBrancher(BranchGrpoBrancher.Settings(calls=calls))
    count = 1
    for index in range(max(1, start), length):
        call = call_of(0.5, borrowed=2 if index == start else 0)
        count += sum(leaves(length, calls, index) for _ in range(part.forks(call, [call_of(0.5)] * index)))
    return count


@given(calls=st.lists(st.integers(1, 5), max_size=4, unique=True))
def test_every_split_point_doubles_the_leaves(calls: list[int]):
    assert leaves(6, calls) == 2 ** len(calls)


def certain(entropy: float, logprob: float):
    call = call_of(entropy)
    return replace(call, response=replace(call.response, logprobs=[logprob]))


@pytest.mark.parametrize(
    ("now", "before", "children"),
    [
        (certain(0.5, -1.0), certain(0.1, -1.0), 2),  # confidence 0.37: 1 + 0 + 0.54
        (certain(1.5, -1.0), certain(0.1, -1.0), 4),  # 1 + 2 + 0.54
        (certain(9.0, -1.0), certain(0.1, -1.0), 4),  # the maximum
        (certain(0.4, -1.0), certain(0.1, -1.0), 0),  # low entropy
        (certain(0.5, -1.0), certain(0.6, -1.0), 0),  # the entropy has fallen
        (certain(0.5, -0.1), certain(0.1, -0.1), 0),  # confident
    ],
)
def test_echo_forks_where_entropy_is_high_and_rising_and_confidence_low(now, before, children: int):
    assert EchoBrancher(EchoBrancher.Settings()).forks(now, [before]) == children
