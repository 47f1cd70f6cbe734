"""GRPO's advantage against numbers worked out by hand, and its invariants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import Advantage
from quartet.errors import ConfigError
from quartet.registry import build

GRPO = build(Advantage(name="grpo"))
STEPS = build(Advantage(name="grpo_steps"))
ONE_CALL_EACH = np.ones(4, dtype=np.int64)


def estimate(*rewards: float) -> np.ndarray:
    return GRPO.estimate(np.array(rewards), np.ones(len(rewards), dtype=np.int64))


def test_one_success_in_four() -> None:
    np.testing.assert_allclose(estimate(1, 0, 0, 0), [1.5, -0.5, -0.5, -0.5], atol=1e-5)


def test_epsilon_stands_beside_the_standard_deviation() -> None:
    halves = build(Advantage(epsilon=0.5)).estimate(np.array([1.0, 0.0, 0.0, 0.0]), ONE_CALL_EACH)
    np.testing.assert_allclose(halves, [0.75, -0.25, -0.25, -0.25])  # std = 0.5 exactly


def test_what_went_worse_may_weigh_less() -> None:
    quarter = build(Advantage(negative_weight=0.25)).estimate(np.array([1.0, 0.0, 0.0, 0.0]), ONE_CALL_EACH)
    np.testing.assert_allclose(quarter, [1.5, -0.125, -0.125, -0.125], atol=1e-5)


@given(st.floats(-1e3, 1e3), st.integers(1, 16))
def test_equal_rewards_and_singletons_give_exactly_zero(reward: float, size: int) -> None:
    assert not estimate(*[reward] * size).any()


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.1, 0.25, 1.0]), min_size=2, max_size=12), st.randoms())
def test_permuting_members_permutes_advantages(rewards: list[float], random) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    np.testing.assert_allclose(estimate(*[rewards[i] for i in order]), estimate(*rewards)[order], atol=1e-9)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_advantages_of_a_group_sum_to_zero(rewards: list[float]) -> None:
    assert abs(estimate(*rewards).sum()) < 1e-6


def test_over_steps_a_long_failure_weighs_more_in_the_baseline() -> None:
    """Steps 1 1 0 0 0 0 0 0: mean 1/4, unbiased standard deviation sqrt(1.5 / 7)."""
    advantages = STEPS.estimate(np.array([1.0, 0.0]), np.array([2, 6]))
    np.testing.assert_allclose(advantages, np.array([0.75, -0.25]) / np.sqrt(1.5 / 7), atol=1e-5)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 12)), min_size=2, max_size=12))
def test_over_steps_the_sum_over_steps_is_zero(members: list[tuple[float, int]]) -> None:
    rewards_N, calls_N = (np.array(column) for column in zip(*members, strict=True))
    assert abs((calls_N * STEPS.estimate(rewards_N, calls_N)).sum()) < 1e-6


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.integers(1, 5))
def test_over_steps_of_equal_length_only_the_degrees_of_freedom_differ(rewards: list[float], length: int) -> None:
    steps = STEPS.estimate(np.array(rewards), np.full(len(rewards), length))
    size = len(rewards)
    freedom = np.sqrt((size * length - 1) / (length * (size - 1)))
    np.testing.assert_allclose(steps, freedom * estimate(*rewards), rtol=1e-3, atol=1e-6)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="grpo"):
        build(Advantage(name="gropo"))
