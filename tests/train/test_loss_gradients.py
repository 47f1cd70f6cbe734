"""Gradients of the policy losses against an independent formula, and what they must not depend on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quartet.config import LossTerm
from quartet.registry import build
from quartet.train.loss.base import LossInput

pytestmark = pytest.mark.slow

BRANCHES = [0, 0, 0, 1, 1, 2]
CLIP_LOW, CLIP_HIGH, CAP = 0.2, 0.28, 1.0
LOSSES = ("ppo_clip", "gspo")

token = st.tuples(st.floats(-1.5, 2.0), st.floats(-3.0, 1.0))
"""Log of the ratio, log of rho."""
branch_advantages = st.lists(st.floats(-2, 2), min_size=3, max_size=3)


def tokens(log_ratios: list[float], log_rhos: list[float], advantages: list[float], branches: list[int]) -> LossInput:
    """In double precision; each branch weighs the same. One advantage per branch."""
    branches_T, double = torch.tensor(branches), torch.float64
    old_T = torch.full([len(branches)], -2.0, dtype=double)
    weights_T = 1 / (torch.bincount(branches_T)[branches_T].to(double) * len(set(branches)))
    return LossInput(
        (old_T + torch.tensor(log_ratios, dtype=double)).requires_grad_(),
        old_T,
        old_T - torch.tensor(log_rhos, dtype=double),
        torch.tensor(advantages, dtype=double)[branches_T],
        weights_T,
        branches_T,
    )


def slope(name: str, batch: LossInput, **settings: float) -> torch.Tensor:
    """Gradient of the whole loss with respect to every token's log-prob."""
    section = LossTerm.model_validate({"name": name, "clip_low": CLIP_LOW, "clip_high": CLIP_HIGH, **settings})
    loss, _ = build(section).loss(batch)
    (gradient_T,) = torch.autograd.grad(loss, batch.logprobs_T)
    return gradient_T


def published(name: str, batch: LossInput, moved_T: np.ndarray, dual_clip: float) -> float:
    """The loss at log-probs shifted by `moved_T`, with numpy and one token at a time, as verl's `core_algos.py` states
    it; GSPO's stop-gradients stay at the unshifted log-probs."""
    log_ratios = (batch.logprobs_T - batch.old_logprobs_T).detach().numpy()
    branches, total = batch.branches_T.numpy(), 0.0
    for index, (weight, advantage) in enumerate(
        zip(batch.weights_T.tolist(), batch.advantages_T.tolist(), strict=True)
    ):
        anchor = log_ratios[branches == branches[index]].mean() if name == "gspo" else log_ratios[index]
        ratio = math.exp(anchor + moved_T[index])
        objective = min(ratio * advantage, min(max(ratio, 1 - CLIP_LOW), 1 + CLIP_HIGH) * advantage)
        if advantage < 0:
            objective = max(objective, dual_clip * advantage)
        rho = math.exp(float(batch.old_logprobs_T[index] - batch.rollout_logprobs_T[index]))
        total -= weight * min(rho, CAP) * objective
    return total


def test_each_token_of_gspo_keeps_its_own_importance_weight() -> None:
    """A = 1, r = 1, w = [1, e^-4], each token half of the branch: -w/2, as in verl and in DART's released code."""
    batch = tokens([0.0, 0.0], [0.0, -4.0], [1.0], [0, 0])
    assert slope("gspo", batch).tolist() == pytest.approx([-0.5, -math.exp(-4) / 2])


@pytest.mark.parametrize("name", LOSSES)
@given(values=st.lists(token, min_size=6, max_size=6), advantages=branch_advantages)
def test_the_gradient_is_that_of_finite_differences(
    name: str, values: list[tuple[float, float]], advantages: list[float]
) -> None:
    log_ratios, log_rhos = map(list, zip(*values, strict=True))
    batch = tokens(log_ratios, log_rhos, advantages, BRANCHES)
    gradient_T, step = slope(name, batch), 1e-6
    for index in range(len(BRANCHES)):
        moved_T = np.zeros(len(BRANCHES))
        ends = []
        for sign in (1, -1):
            moved_T[index] = sign * step
            ends.append(published(name, batch, moved_T, dual_clip=3.0))
        numeric = (ends[0] - ends[1]) / (2 * step)
        one_sided = {round((end - published(name, batch, np.zeros(6), 3.0)) * sign / step, 5)
                     for sign, end in zip((1, -1), ends, strict=True)}  # fmt: skip
        if max(one_sided) - min(one_sided) < 1e-4:  # away from a kink of the clip
            assert float(gradient_T[index]) == pytest.approx(numeric, abs=1e-6, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
@given(values=st.lists(token, min_size=6, max_size=6), advantages=branch_advantages, order=st.permutations(range(6)))
def test_the_order_of_tokens_and_branches_is_without_effect(
    name: str, values: list[tuple[float, float]], advantages: list[float], order: list[int]
) -> None:
    log_ratios, log_rhos = map(list, zip(*values, strict=True))
    straight = slope(name, tokens(log_ratios, log_rhos, advantages, BRANCHES))
    numbers = {branch: place for place, branch in enumerate(dict.fromkeys(BRANCHES[index] for index in order))}
    shuffled = tokens(
        [log_ratios[index] for index in order],
        [log_rhos[index] for index in order],
        [advantages[branch] for branch in numbers],
        [numbers[BRANCHES[index]] for index in order],
    )
    torch.testing.assert_close(slope(name, shuffled), straight[list(order)])


@pytest.mark.parametrize("name", LOSSES)
def test_a_microbatch_of_its_own_gives_a_branch_the_same_gradient(name: str) -> None:
    """Another branch, absurd in every respect, beside it changes nothing."""
    alone = tokens([0.1, -0.2], [-0.5, 0.3], [1.5], [0, 0])
    beside = tokens([0.1, -0.2, 30.0], [-0.5, 0.3, 40.0], [1.5, -9.0], [0, 0, 1])
    torch.testing.assert_close(2 * slope(name, beside)[:2], slope(name, alone))


@pytest.mark.parametrize("name", LOSSES)
def test_a_negative_advantage_has_a_bounded_gradient(name: str) -> None:
    """A = -1, log r = 5: without the dual clip the gradient is e^5 = 148."""
    batch = tokens([5.0], [0.0], [-1.0], [0])
    assert slope(name, batch, dual_clip=1e9).tolist() == pytest.approx([math.exp(5)])
    assert slope(name, batch).tolist() == [0.0]
    below = tokens([math.log(2.9)], [0.0], [-1.0], [0])
    assert slope(name, below).tolist() == pytest.approx([2.9])


@pytest.mark.parametrize("name", LOSSES)
def test_the_dual_clip_bounds_the_loss_and_is_counted(name: str) -> None:
    """Yu and others, arXiv 1912.09729: A = -1, r = 10, c = 3 gives loss 3."""
    loss, metrics = build(LossTerm(name=name)).loss(tokens([math.log(10), 0.0], [0.0, 0.0], [-1.0, -1.0], [0, 1]))
    assert loss.item() == pytest.approx((3 + 1) / 2)
    assert metrics["dual_clip_fraction"] == pytest.approx(0.5)


@pytest.mark.parametrize("name", LOSSES)
def test_a_positive_advantage_knows_no_dual_clip(name: str) -> None:
    batch = tokens([-3.0], [0.0], [1.0], [0])
    assert slope(name, batch, dual_clip=1.1).tolist() == pytest.approx([-math.exp(-3)])
