"""Credits that weigh groups by their success rate: expected gradients over all outcomes, and the published tables."""

from collections.abc import Callable
from itertools import product
from math import ceil, comb

import numpy as np
import pytest
from credit_cases import credit_of, of_rewards

from quartet.config import Credit


def expected_gradient(advantages: Callable[[list[float]], np.ndarray], p: float, draws: int) -> float:
    """Over all outcomes of draws from two arms, of which one pays with p: the mean gradient with respect to the logit,
    whose score is reward - p."""
    total = 0.0
    for rewards in product([0.0, 1.0], repeat=draws):
        probability = np.prod([p if reward else 1 - p for reward in rewards])
        total += probability * (advantages(list(rewards)) * (np.array(rewards) - p)).mean()
    return float(total)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_max_rl_climbs_the_likelihood_up_to_the_order_that_its_group_allows(p: float) -> None:
    """The gradient of log p is (1 + (1 - p) + (1 - p)^2 + ...) times that of p; a group of four has the first three."""
    found = expected_gradient(lambda rewards: of_rewards(Credit(name="max_rl"), rewards), p, draws=4)
    assert found == pytest.approx(sum((1 - p) ** order for order in range(3)) * p * (1 - p), rel=1e-5)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_pass_at_k_climbs_the_probability_that_one_of_k_succeeds(k: int) -> None:
    """pass@k = 1 - (1 - p)^k, whose derivative is k (1 - p)^(k - 1); a group of five has no bias for any k."""
    p = 0.3
    found = expected_gradient(lambda rewards: of_rewards(credit_of("pass_at_k", k=k), rewards), p, draws=5)
    assert found == pytest.approx(k * (1 - p) ** (k - 1) * p * (1 - p), rel=1e-5)


@pytest.mark.parametrize("k", [2, 4, 8])
def test_pass_at_k_counts_the_sets_that_a_success_saves(k: int) -> None:
    """Of the sets of k - 1 among the 7 others, those without one of the 2 other successes."""
    advantages = of_rewards(credit_of("pass_at_k", k=k), [1.0] * 3 + [0.0] * 5)
    np.testing.assert_allclose(advantages, [k * comb(5, k - 1) / comb(7, k - 1)] * 3 + [0.0] * 5, rtol=1e-6)


def test_pass_at_the_group_s_size_is_the_lead_of_the_best() -> None:
    """Also where the group is smaller than k: verl's `grpo_passk`, times the size of the group."""
    for k in (3, 64):
        np.testing.assert_allclose(of_rewards(credit_of("pass_at_k", k=k), [0.2, 0.9, 0.5]), [0, 3 * 0.4, 0], rtol=1e-6)
    assert of_rewards(credit_of("pass_at_k"), [0.9, 0.9, 0.5]).tolist() == [0, 0, 0], "two share the lead"


@pytest.mark.parametrize(
    ("schedule", "max_weight", "further"), [("equal", 4, [24, 11, 3, 1, 0]), ("hard", 8, [56, 24, 8, 3, 0])]
)
def test_weights_of_dars_are_its_numbers_of_further_rollouts(
    schedule: str, max_weight: float, further: list[int]
) -> None:
    """The table of the reference for groups of 8 with 0 to 4 successes: n rollouts and m further ones sum up to as much
    |advantage| as n rollouts of weight (n + m) / n; at no success DARS takes the bound, and there is no advantage."""
    for successes, more in list(enumerate(further))[1:]:
        rewards = [1.0] * successes + [0.0] * (8 - successes)
        weighed = of_rewards(credit_of("dars", schedule=schedule, max_weight=max_weight), rewards)
        weight = np.abs(weighed).sum() / np.abs(of_rewards(Credit(name="dr_grpo"), rewards)).sum()
        assert ceil(8 * weight - 1e-4) - 8 == more


def test_dars_bounds_its_weight_and_leaves_easy_tasks_alone() -> None:
    rare = [1.0] + [0.0] * 31
    np.testing.assert_allclose(of_rewards(credit_of("dars"), rare), 4 * (np.array(rare) - 1 / 32), rtol=1e-6)
    easy = [1.0, 1.0, 1.0, 0.0]
    np.testing.assert_array_equal(of_rewards(credit_of("dars"), easy), of_rewards(Credit(name="dr_grpo"), easy))


def test_a_reward_below_zero_is_no_success_for_max_rl() -> None:
    np.testing.assert_allclose(of_rewards(Credit(name="max_rl"), [1.0, -1.0]), [1, -1])
    assert of_rewards(Credit(name="max_rl"), [-1.0, -0.5, 0.0]).tolist() == [0, 0, 0]
