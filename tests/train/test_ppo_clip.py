"""The clipped loss against numbers worked out by hand: both signs, both bounds, the importance weight."""

import pytest
import torch

from quartet.config import LossTerm
from quartet.registry import build
from quartet.train.loss.base import LossInput
from quartet.train.loss.kl import k3

FIRST = torch.tensor([0])
"""The branch of a single token."""


def evaluate(
    ratio: float, advantage: float, *, rho: float = 1.0, cap: float = 1.0, importance: str = "truncate"
) -> tuple[float, float, dict[str, float]]:
    """Loss of one token, its gradient with respect to the log-prob, and the metrics."""
    old = torch.tensor([-2.0])
    logprobs = (old + torch.tensor([ratio]).log()).requires_grad_()
    recorded, one = old - torch.tensor([rho]).log(), torch.tensor([1.0])
    tokens = LossInput(logprobs, old, recorded, torch.tensor([advantage]), one, FIRST)
    section = LossTerm.model_validate(
        {"name": "ppo_clip", "clip_low": 0.2, "clip_high": 0.28, "importance_cap": cap, "importance": importance}
    )
    loss, metrics = build(section).loss(tokens)
    loss.backward()
    assert logprobs.grad is not None
    return loss.item(), logprobs.grad.item(), metrics


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, 0),
        (1.2, 2.0, -2.4, -2.4, 0),
        (1.5, 2.0, -2.56, 0.0, 1),  # above 1.28, advantage positive: stop
        (0.5, 2.0, -1.0, -1.0, 0),  # below 0.8 but the wrong way: pull back
        (1.5, -2.0, 3.0, 3.0, 0),  # above 1.28 the wrong way: push back
        (0.9, -2.0, 1.8, 1.8, 0),
        (0.5, -2.0, 1.6, 0.0, 1),  # below 0.8, advantage negative: stop
    ],
)
def test_clip_by_hand(ratio: float, advantage: float, loss: float, gradient: float, clipped: int) -> None:
    value, slope, metrics = evaluate(ratio, advantage)
    assert value == pytest.approx(loss, rel=1e-5)
    assert slope == pytest.approx(gradient, rel=1e-5)
    assert metrics["clip_fraction"] == clipped


@pytest.mark.parametrize(
    ("rho", "cap", "weight"), [(0.5, 1.0, 0.5), (1.0, 1.0, 1.0), (3.0, 1.0, 1.0), (3.0, 2.0, 2.0), (0.5, 2.0, 0.5)]
)
def test_importance_weight_is_capped_and_constant(rho: float, cap: float, weight: float) -> None:
    """The gradient is w * grad(log pi) * A exactly, so w itself carries none."""
    loss, gradient, metrics = evaluate(1.0, 2.0, rho=rho, cap=cap)
    assert loss == pytest.approx(-2.0 * weight, rel=1e-5)
    assert gradient == pytest.approx(-2.0 * weight, rel=1e-5)
    assert metrics["importance_mean"] == pytest.approx(weight, rel=1e-5)
    assert metrics["importance_capped_fraction"] == float(rho > cap)


@pytest.mark.parametrize(
    ("importance", "cap", "weights"),
    [
        ("truncate", 1.0, [0.5, 1.0, 1.0, 1.0]),  # DART
        ("truncate", 2.0, [0.5, 1.0, 2.0, 2.0]),  # slime
        ("mask", 2.0, [0.5, 1.0, 0.0, 0.0]),
        ("mask", 5.0, [0.5, 1.0, 3.0, 0.0]),  # AReaL
        ("none", 1.0, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_the_published_importance_weights(importance: str, cap: float, weights: list[float]) -> None:
    found = [evaluate(1.0, 1.0, rho=rho, cap=cap, importance=importance)[1] for rho in (0.5, 1.0, 3.0, 10.0)]
    assert found == pytest.approx([-weight for weight in weights], rel=1e-5)


@pytest.mark.parametrize(("importance", "fraction"), [("truncate", 1.0), ("mask", 1.0), ("none", 0.0)])
def test_only_weights_that_a_cap_has_changed_count_as_capped(importance: str, fraction: float) -> None:
    assert evaluate(1.0, 1.0, rho=3.0, importance=importance)[2]["importance_capped_fraction"] == fraction


def test_a_ratio_that_is_above_the_cap_by_rounding_does_not_count_as_capped() -> None:
    assert evaluate(1.0, 1.0, rho=1.00001)[2]["importance_capped_fraction"] == 0.0


def test_importance_weight_is_detached_from_live_old_logprobs() -> None:
    """With one optimizer step old log-probs are the trained ones detached; nothing flows even if they were not."""
    logprobs = torch.tensor([-1.0], requires_grad=True)
    one = torch.tensor([1.0])
    tokens = LossInput(logprobs, logprobs, torch.tensor([-0.5]), one, one, FIRST)
    loss, _ = build(LossTerm.model_validate({"name": "ppo_clip", "importance_cap": 2.0})).loss(tokens)
    (gradient,) = torch.autograd.grad(loss, logprobs, allow_unused=True)
    assert float(gradient) == 0.0  # r = 1 identically, w constant


def test_same_logprobs_everywhere_is_plain_policy_gradient() -> None:
    loss, gradient, metrics = evaluate(1.0, -0.5)
    assert (loss, gradient) == (0.5, 0.5)
    assert metrics["importance_mean"] == 1.0


def test_absurd_logprobs_stay_finite() -> None:
    tokens = LossInput(
        torch.tensor([0.0], requires_grad=True),
        torch.tensor([-500.0]),
        torch.tensor([-1e4]),
        torch.tensor([-1.0]),
        torch.tensor([1.0]),
        FIRST,
    )
    loss, metrics = build(LossTerm(name="ppo_clip")).loss(tokens)
    assert loss.isfinite()
    assert all(value == value for value in metrics.values())


def test_k3_is_zero_at_the_reference_and_positive_elsewhere() -> None:
    reference_T = torch.tensor([-1.0, -1.0, -1.0])
    kl_T = k3(torch.tensor([-1.0, -2.0, -0.5]), reference_T)
    assert kl_T[0] == 0
    torch.testing.assert_close(kl_T[1:], torch.tensor([2.718282 - 2, 0.606531 + 0.5 - 1]))


def test_k3_is_bounded_and_so_is_its_gradient() -> None:
    """verl clamps the log-ratio to 20 and the estimate to 10: no token pulls harder than where the estimate is 10."""
    logprobs_T = torch.linspace(-60.0, 60.0, 4001, dtype=torch.float64).requires_grad_()
    kl_T = k3(logprobs_T, torch.zeros(4001, dtype=torch.float64))
    (gradient_T,) = torch.autograd.grad(kl_T.sum(), logprobs_T)
    assert kl_T.max() <= 10
    inside = kl_T.detach() < 10
    torch.testing.assert_close(gradient_T[inside], (1 - (-logprobs_T).exp()).detach()[inside])
    assert inside.sum() > 400
    assert not gradient_T[~inside].any()
    assert gradient_T.abs().max() < 13
