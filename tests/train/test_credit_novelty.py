"""XRPO's novelty bonus against numbers worked out by hand."""

from collections.abc import Sequence

import numpy as np
import pytest
from credit_cases import credit_of, credited, member, of_calls
from msgspec.structs import replace
from tiny_batches import make_batch

from quartet.types import ReplayRule, Trajectory

HALF = 3**0.5 / 2
"""Advantage of GRPO for two successes of four, whose unbiased standard deviation is 1 / sqrt(3)."""


def spoken(reward: float, logprobs: Sequence[float]) -> Trajectory:
    """Return a rollout of one call whose tokens were sampled with these log-probs."""
    rollout = member(reward, tokens=2)
    (call,) = rollout.calls
    return replace(rollout, calls=[replace(call, response=replace(call.response, logprobs=list(logprobs)))])


def sharpened(*group: Trajectory, **settings: float) -> np.ndarray:
    return np.array([advantages[0] for advantages in of_calls(credit_of("xrpo", **settings), group)])


def group() -> list[Trajectory]:
    """Mean log-probs -1, -0.2, -0.4 and -0.4: the novelties are exp(-0.5), exp(0.3), exp(0.1) and exp(0.1)."""
    return [spoken(1, [-1.5, -0.5]), spoken(1, [-0.2, -0.2]), spoken(0, [-0.1, -0.7]), spoken(0, [-0.4, -0.4])]


def test_an_unlikely_success_gets_half_of_its_advantage_more() -> None:
    """Its bonus of 2.5 (1 - exp(-0.5)) = 0.98 is cut; the likely success and the failures get none."""
    np.testing.assert_allclose(sharpened(*group()), HALF * np.array([1.5, 1, -1, -1]), rtol=1e-5)


def test_a_bonus_below_the_limit_is_the_weighted_novelty() -> None:
    bonus = 0.5 * (1 - np.exp(-0.5))
    found = sharpened(*group(), novelty_weight=0.5)
    np.testing.assert_allclose(found, [HALF + bonus, HALF, -HALF, -HALF], rtol=1e-5)


def test_an_unlikely_failure_is_not_punished_more() -> None:
    rare = [spoken(0, [-3.0, -3.0]), spoken(1, [-0.4, -0.4]), spoken(1, [-0.4, -0.4]), spoken(0, [-0.4, -0.4])]
    np.testing.assert_allclose(sharpened(*rare), HALF * np.array([-1, 1, 1, -1]), rtol=1e-5)


@pytest.mark.parametrize("settings", [{"novelty_weight": 0.0}, {"max_share": 0.0}])
def test_without_bonus_it_is_grpo(settings: dict[str, float]) -> None:
    grpo = [advantages[0] for advantages in of_calls(credit_of("grpo"), group())]
    np.testing.assert_array_equal(sharpened(*group(), **settings), grpo)


def test_rollouts_whose_log_probs_must_not_be_used_get_no_bonus_and_do_not_move_the_mean() -> None:
    """The second success and failure are stored rollouts. The mean of the others is (-1 - 0.4) / 2, so the first
    success has the novelty exp(-0.3)."""
    batch = make_batch([[spoken(1, [-1, -1]), spoken(1, [-9, -9]), spoken(0, [-0.4, -0.4]), spoken(0, [-9, -9])]])
    (fresh,) = batch.groups
    rules = (None, ReplayRule.RECOMPUTE, None, ReplayRule.RECOMPUTE)
    members = [replace(one, replay=rule) for one, rule in zip(fresh.members, rules, strict=True)]
    seen = credited(credit_of("xrpo", novelty_weight=0.5), replace(batch, groups=[replace(fresh, members=members)]))
    bonus = 0.5 * (1 - np.exp(-0.3))
    found = [seen.advantages_T[seen.members_T == number][0] for number in range(4)]
    np.testing.assert_allclose(found, [HALF + bonus, HALF, -HALF, -HALF], rtol=1e-5)
