"""GSPO against numbers worked out by hand, and against the token-level loss where both are the same."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import LossTerm
from quartet.registry import build
from quartet.train.loss.base import LossInput

GSPO = build(LossTerm.model_validate({"name": "gspo", "clip_low": 0.1, "clip_high": 0.28}))


def tokens(log_ratios: list[float], advantages: list[float], branches: list[int]) -> LossInput:
    """Tokens that the engine sampled as the trainer would, each branch weighing the same."""
    old_T, branches_T = torch.full([len(log_ratios)], -2.0), torch.tensor(branches)
    weights_T = 1 / (torch.bincount(branches_T)[branches_T] * len(set(branches)))
    logprobs_T = (old_T + torch.tensor(log_ratios)).requires_grad_()
    return LossInput(logprobs_T, old_T, old_T, torch.tensor(advantages), weights_T, branches_T)


def test_a_branch_moves_by_the_geometric_mean_of_its_ratios() -> None:
    """Ratios 1.44 and 1 make 1.2; loss -1.2 * A; each token's gradient is half of it."""
    batch = tokens([math.log(1.44), 0.0], [2.0, 2.0], [0, 0])
    loss, metrics = GSPO.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(-2.4, rel=1e-5)
    assert metrics["ratio_mean"] == pytest.approx(1.2, rel=1e-5)
    torch.testing.assert_close(batch.logprobs_T.grad, torch.tensor([-1.2, -1.2]))


def test_a_branch_is_clipped_as_a_whole_and_alone() -> None:
    """Branch 0: ratios 2 and 0.9, mean above 1.28, so both tokens stop. Branch 1 goes on."""
    batch = tokens([math.log(2.0), math.log(0.9), 0.0], [1.0, 1.0, 1.0], [0, 0, 1])
    loss, metrics = GSPO.loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(-(1.28 + 1.0) / 2, rel=1e-5)
    assert metrics["clip_fraction"] == pytest.approx(0.5)
    torch.testing.assert_close(batch.logprobs_T.grad, torch.tensor([0.0, 0.0, -0.5]))


@given(st.lists(st.tuples(st.floats(-0.5, 0.5), st.floats(-2, 2)), min_size=1, max_size=6))
def test_with_one_token_per_branch_it_is_the_token_level_loss(values: list[tuple[float, float]]) -> None:
    log_ratios, advantages = map(list, zip(*values, strict=True))
    batch = tokens(log_ratios, advantages, list(range(len(values))))
    plain = build(LossTerm.model_validate({"name": "ppo_clip", "clip_low": 0.1, "clip_high": 0.28}))
    torch.testing.assert_close(GSPO.loss(batch)[0], plain.loss(batch)[0])
