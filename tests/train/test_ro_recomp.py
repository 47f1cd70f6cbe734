"""RoRecomp: the priority members of a group, advantages over the whole group, and batches that compensate."""

import numpy as np
import pytest
from credit_cases import child, credit_of, credited, member, of_calls
from msgspec.structs import replace
from tiny_batches import make_batch

from quartet.types import Trajectory

GROUP = [(5, 1.0), (9, 1.0), (7, 0.0), (3, 0.0)]
"""Number of turns and reward of each member."""


def of_length(turns: int, reward: float) -> Trajectory:
    return member(*[0.0] * (turns - 1), reward)


def trained(group: list[Trajectory], **settings: float | str) -> list[int]:
    """Return the places in the group of the members that are trained."""
    seen = credited(credit_of("ro_recomp", compensation=0.0, **settings), make_batch([group]))
    assert seen.metrics["priority_fraction"] == len(np.unique(seen.members_T[seen.mask_T])) / len(group)
    return np.unique(seen.members_T[seen.mask_T]).tolist()


@pytest.mark.parametrize(("share", "members"), [(0.5, [0, 2]), (0.8, [0, 1, 2, 3]), (0.0, []), (1.0, [0, 1, 2, 3])])
def test_short_successes_and_long_failures_have_priority(share: float, members: list[int]):
    assert trained([of_length(*one) for one in GROUP], share=share) == members


def test_a_share_is_rounded_up():
    group = [*[of_length(turns, 1.0) for turns in (4, 2, 3)], of_length(1, 0.0)]
    assert trained(group, share=0.5) == [1, 2, 3]


def test_length_may_be_counted_in_tokens():
    group = [member(1.0, tokens=9), member(0.0, 1.0, tokens=2), member(0.0, tokens=1), member(0.0, tokens=5)]
    assert trained(group, share=0.5, length="tokens") == [1, 3]
    assert trained(group, share=0.5) == [0, 2], "one and two calls; of equally long members the first"


def test_length_in_tokens_counts_borrowed_and_old_ones():
    """The failures have 5 + 2, 4, and 3 + 3 tokens, of which the first 5 and the last 3 are not trained."""
    parent, half_old = member(1.0, tokens=5), member(0.0, 0.0, tokens=3)
    first, last = half_old.calls
    old = replace(last, response=replace(last.response, versions=[-99] * 3))
    group = [parent, child(parent, 0, 0.0), member(0.0, tokens=4), replace(half_old, calls=[first, old])]
    assert trained(group, share=0.6, length="tokens") == [0, 1, 3]


def test_calls_that_a_priority_child_shares_with_another_parent_are_trained():
    """Of the successes the child is shorter than its parent, so only the parent's calls after the fork are left out."""
    parent = of_length(5, 1.0)
    group = [parent, child(parent, 1, 1.0), of_length(2, 0.0)]
    seen = credited(credit_of("ro_recomp", share=0.5, compensation=0.0), make_batch([group]))
    assert seen.metrics["priority_fraction"] == pytest.approx(2 / 3)
    assert np.unique(seen.calls_T[seen.mask_T]).tolist() == [0, 1, 7, 8, 9]


def test_advantages_are_over_the_whole_group():
    """Rewards 1, 0, 0, 0: mean 0.25, unbiased deviation 0.5."""
    group = [of_length(2, 1.0), *[of_length(turns, 0.0) for turns in (1, 2, 3)]]
    credit = credit_of("ro_recomp", share=0.3, compensation=0.0)
    assert [calls[0] for calls in of_calls(credit, group)] == pytest.approx([1.5, -0.5], abs=1e-5)


def test_a_batch_that_compensates_trains_all_members_as_grpo_does():
    group = [of_length(*one) for one in GROUP]
    credit = credit_of("ro_recomp", share=0.5, compensation=1.0)
    assert of_calls(credit, group) == of_calls(credit_of("grpo"), group)
    draws = [len(of_calls(credit_of("ro_recomp", share=0.5), group, *[[of_length(1, 0.0)]] * n)) for n in range(40)]
    compensating = sum(count == 4 + n for n, count in enumerate(draws)) / 40
    assert 0.25 < compensating < 0.75
