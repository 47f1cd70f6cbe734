"""BroRL: its theorem on one step of the logits, numerically, and its rule for the learning rate."""

from itertools import pairwise
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

from benchmarks.strategies.brorl import broad
from quartet.recipe.file import load_recipe

RECIPES = Path(__file__).parents[2] / "recipes"
RIGHT, WRONG = 1.0, -0.4
"""Rewards of sampled right and wrong answers; answers that were not sampled have 0."""


def softmax(logits_V: np.ndarray) -> np.ndarray:
    shifted_V = np.exp(logits_V - logits_V.max())
    return shifted_V / shifted_V.sum()


@pytest.mark.parametrize("seed", range(5))
def test_the_change_of_the_right_answers_is_that_of_the_theorem(seed: int):
    """dQ = eta / N [(Rc - S) Qneg A2 + (S - Rw) Qpos B2 + S (Qpos Uneg2 - Qneg Upos2)], to first order in eta."""
    draw, rollouts, eta = np.random.default_rng(seed), 8, 1e-6
    logits_V = draw.normal(size=50)
    p_V, right_V = softmax(logits_V), np.arange(50) < 12
    sampled_V = np.isin(np.arange(50), draw.choice(50, rollouts, p=p_V))
    rewards_V = np.where(sampled_V, np.where(right_V, RIGHT, WRONG), 0.0)
    mean = float(rewards_V @ p_V)
    q_right, q_wrong = p_V[right_V].sum(), p_V[~right_V].sum()

    def squares(which_V: np.ndarray) -> float:
        return float((p_V[which_V] ** 2).sum())

    predicted = (RIGHT - mean) * q_wrong * squares(sampled_V & right_V)
    predicted += (mean - WRONG) * q_right * squares(sampled_V & ~right_V)
    predicted += mean * (q_right * squares(~sampled_V & ~right_V) - q_wrong * squares(~sampled_V & right_V))
    stepped_V = softmax(logits_V + eta / rollouts * p_V * (rewards_V - mean))
    assert (stepped_V[right_V].sum() - q_right) / eta == pytest.approx(predicted / rollouts, rel=1e-4)


def test_the_weight_of_tokens_that_are_not_sampled_falls_with_the_number_of_rollouts():
    p_V = softmax(np.random.default_rng(0).normal(size=50))
    weights = [float((p_V**2 * (1 - p_V) ** rollouts).sum()) for rollouts in (4, 16, 64, 512, 4096)]
    assert all(more < fewer for fewer, more in pairwise(weights))
    draw = np.random.default_rng(1)
    missed = [1 - np.isin(np.arange(50), draw.choice(50, 16, p=p_V)) for _ in range(4000)]
    assert float(np.mean(missed, axis=0) @ p_V**2) == pytest.approx(weights[1], rel=0.03)


def test_the_learning_rate_grows_with_the_root_of_the_batch():
    """From 512 x 16 to 128 x 512 rollouts the batch is 8 times as large: a factor of 2.828."""
    base, recipe = (load_recipe(RECIPES / name / "recipe.toml") for name in ("miniwob", "brorl"))
    sizes = [one.control.rollouts_per_group * one.train.groups_per_batch for one in (base, recipe)]
    factor = recipe.train.learning_rate / base.train.learning_rate
    assert sizes[1] == 8 * sizes[0] and factor == pytest.approx(sqrt(8), rel=1e-3)
    assert broad(128, 8)[2] == f"train.learning_rate={3.2 * sqrt(8):.4g}"
