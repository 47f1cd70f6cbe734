"""Loss terms of the policy against numbers worked out by hand: CISPO, interpolated PPO, Clip-Cov, KL-Cov, AWR, KL."""

import math

import pytest
import torch

from benchmarks.lag.naive_ppo import NaivePpo
from quartet.config import LossTerm
from quartet.registry import build
from quartet.train.loss.base import LossInput
from quartet.train.loss.kl import ESTIMATORS


def tokens(ratios: list[float], advantages: list[float], *, rhos: list[float] | None = None, **columns) -> LossInput:
    """Tokens of one branch each, in double precision, with the old log-prob -2 and equal weights."""
    count, double = len(ratios), torch.float64
    old_T = torch.full([count], -2.0, dtype=double)
    return LossInput(
        logprobs_T=(old_T + torch.tensor(ratios, dtype=double).log()).requires_grad_(),
        old_logprobs_T=old_T,
        rollout_logprobs_T=old_T - torch.tensor(rhos or [1.0] * count, dtype=double).log(),
        advantages_T=torch.tensor(advantages, dtype=double),
        weights_T=torch.full([count], 1 / count, dtype=double),
        branches_T=torch.arange(count),
        **columns,
    )


def evaluated(name: str, batch: LossInput, **settings: object) -> tuple[float, list[float], dict[str, float]]:
    """Loss, gradient in every token's log-prob times the number of tokens, and metrics."""
    term = build(LossTerm.model_validate({"name": name, **settings}))
    if term.needs_minibatch:
        batch = batch._replace(minibatch_T=term.over_minibatch(batch._replace(logprobs_T=batch.logprobs_T.detach())))
    loss, metrics = term.loss(batch)
    (gradient_T,) = torch.autograd.grad(loss, batch.logprobs_T)
    return loss.item(), (gradient_T * len(gradient_T)).tolist(), metrics


def test_cispo_keeps_a_bounded_gradient_where_the_clip_of_ppo_ends_it() -> None:
    """A = 2 and r = 3: the coefficient is 1.28 * A, and 0 under PPO's clip."""
    _, (cispo,), metrics = evaluated("cispo", tokens([3.0], [2.0]), clip_high=0.28)
    _, (ppo,), _ = evaluated("ppo_clip", tokens([3.0], [2.0]), clip_high=0.28)
    assert (cispo, ppo) == (pytest.approx(-2.56), 0.0)
    assert metrics["clip_fraction"] == 1.0


def test_cispo_has_no_lower_bound_unless_it_is_set() -> None:
    assert evaluated("cispo", tokens([0.01], [1.0]))[1] == pytest.approx([-0.01])
    assert evaluated("cispo", tokens([0.01], [1.0]), clip_low=0.2)[1] == pytest.approx([-0.8])


def test_cispo_multiplies_by_the_importance_weight() -> None:
    assert evaluated("cispo", tokens([1.0], [1.0], rhos=[0.25]))[1] == pytest.approx([-0.25])


def test_the_interpolated_policy_of_a_token_of_one_version_is_the_one_that_sampled_it() -> None:
    """Then it is PPO that clips around the policy that sampled, with weight 1."""
    batch = tokens([1.1, 0.7, 2.0], [1.0, -1.0, 1.0], rhos=[1.3, 0.8, 0.9], lags_T=torch.tensor([0, 1, 1]))
    loss, gradient, _ = evaluated("ppo_interpolated", batch)
    expected, _ = NaivePpo(NaivePpo.Settings()).loss(batch)
    assert loss == pytest.approx(expected.item())
    (expected_T,) = torch.autograd.grad(expected, batch.logprobs_T)
    assert gradient == pytest.approx((3 * expected_T).tolist())


@pytest.mark.parametrize(("lag", "share"), [(1, 1.0), (2, 1 / 2), (4, 1 / 4), (1000, 1 / 1000)])
def test_the_older_a_token_the_nearer_its_ratio_is_to_one(lag: int, share: float) -> None:
    """pi / pi_rollout = 1.44: the ratio is 1.44^(1 / lag), and the weight the rest of it, here not capped."""
    batch = tokens([1.2], [1.0], rhos=[1.2], lags_T=torch.tensor([lag]))
    _, _, metrics = evaluated("ppo_interpolated", batch, importance_cap=9.0)
    assert metrics["ratio_mean"] == pytest.approx(1.44**share)
    assert metrics["importance_mean"] == pytest.approx(1.44 ** (1 - share))


def test_clip_cov_leaves_out_the_largest_covariances_of_its_band() -> None:
    """Deviations (1, -1) of log-prob and advantage: covariances 1, 1, -1, -1; the band ends below 1 or not."""
    old_T = torch.tensor([-1.0, -3.0, -1.0, -3.0], dtype=torch.float64)
    batch = tokens([1.0] * 4, [1.0, -1.0, -1.0, 1.0])
    batch = batch._replace(logprobs_T=old_T.clone().requires_grad_(), old_logprobs_T=old_T, rollout_logprobs_T=old_T)
    plain = evaluated("ppo_clip", batch)[1]
    assert evaluated("clip_cov", batch, cov_share=0.5, cov_low=0.5)[1] == pytest.approx([0.0, 0.0, *plain[2:]])
    assert evaluated("clip_cov", batch, cov_share=0.5, cov_low=1.5)[1] == pytest.approx(plain)
    one = evaluated("clip_cov", batch, cov_share=0.0, cov_low=0.5)
    assert one[1].count(0.0) == 1 and one[2]["cov_clipped_fraction"] == 0.25, "at least one token, as in the code"


def test_the_metrics_of_clip_cov_are_means_over_all_tokens() -> None:
    """Also over the two tokens that are left out: the mean ratio is 1, as it is with `ppo_clip`."""
    old_T = torch.tensor([-1.0, -3.0, -1.0, -3.0], dtype=torch.float64)
    batch = tokens([1.0] * 4, [1.0, -1.0, -1.0, 1.0])
    batch = batch._replace(logprobs_T=old_T.clone().requires_grad_(), old_logprobs_T=old_T, rollout_logprobs_T=old_T)
    metrics = evaluated("clip_cov", batch, cov_share=0.5, cov_low=0.5)[2]
    assert metrics == pytest.approx(evaluated("ppo_clip", batch)[2] | {"cov_clipped_fraction": 0.5})
    assert metrics["ratio_mean"] == pytest.approx(1.0)


def test_clip_cov_passes_over_tokens_that_are_clipped_anyway() -> None:
    """Covariances 0.3625, 0.3125, -0.6375, 0.1125: the first is beyond PPO's clip, so the second is left out."""
    old_T = torch.tensor([-1.5, -1.1, -3.0, -1.8], dtype=torch.float64)
    now_T = torch.tensor([-1.0, -1.1, -3.0, -1.8], dtype=torch.float64)
    batch = tokens([1.0] * 4, [1.0, 1.0, 1.0, -1.0])
    batch = batch._replace(logprobs_T=now_T.requires_grad_(), old_logprobs_T=old_T, rollout_logprobs_T=old_T)
    gradient = evaluated("clip_cov", batch, cov_share=0.25, cov_low=0.2)[1]
    assert gradient == pytest.approx([0.0, 0.0, -1.0, 1.0])


def test_a_band_without_tokens_is_refused() -> None:
    with pytest.raises(Exception, match="cov_low is not below cov_high"):
        build(LossTerm.model_validate({"name": "clip_cov", "cov_low": 5.0}))


def test_kl_cov_penalises_the_largest_covariance_and_clips_nothing() -> None:
    """Covariances 0.5, 0.25 and 0: gradients -r A, and at the first token also the sign of log r."""
    up, down = math.exp(0.5), math.exp(-0.5)
    batch = tokens([up, down, 1.0], [1.0, -0.5, -0.5])
    loss, gradient, metrics = evaluated("kl_cov", batch, cov_share=0.4, coefficient=2.0)
    assert loss == pytest.approx((-up + 0.5 * down + 0.5 + 2 * 0.5) / 3)
    assert gradient == pytest.approx([-up + 2.0, 0.5 * down, 0.5])
    assert metrics["cov_penalised_fraction"] == pytest.approx(1 / 3)
    assert evaluated("kl_cov", tokens([1.0, 1.0], [1.0, -1.0]))[1] == pytest.approx([-1.0, 1.0])


def test_the_gate_of_sapo_is_the_policy_gradient_at_one_and_bounded_far_away() -> None:
    """d/d(log pi) of 4/tau * sigmoid(tau (r - 1)) is r * 4 * s * (1 - s): at r = 1 it is 1, at r = 3 0.42 * 3."""
    _, gradient, _ = evaluated("sapo", tokens([1.0, 1.0, 3.0, 20.0], [2.0, -2.0, 1.0, 1.0]))
    gate = 1 / (1 + math.exp(-2.0))
    assert gradient == pytest.approx([-2.0, 2.0, -3 * 4 * gate * (1 - gate), 0.0], abs=1e-5)


def test_the_clip_of_mixed_ppo_moves_with_the_policy() -> None:
    """pi_rollout = 0.5 and pi_old = pi = 0.6: r = c = 1.2, inside [1, 1.4]; around 1 it would be at its bound."""
    loss, gradient, metrics = evaluated("ppo_mixed", tokens([1.0, 1.25], [1.0, 1.0], rhos=[1.2, 1.2]))
    assert gradient == pytest.approx([-1.2, 0.0])
    assert loss == pytest.approx(-(1.2 + 1.4) / 2)
    assert (metrics["clip_fraction"], metrics["clip_center_mean"]) == (pytest.approx(0.5), pytest.approx(1.2))
    on_policy = tokens([0.7, 1.5, 1.1], [-1.0, 1.0, 1.0])
    same = {"clip_low": 0.2, "clip_high": 0.2}
    loss, gradient, _ = evaluated("ppo_clip", on_policy, **same)
    assert evaluated("ppo_mixed", on_policy)[:2] == (pytest.approx(loss), pytest.approx(gradient))


def test_filtered_cloning_imitates_above_its_threshold_and_never_lowers() -> None:
    batch = tokens([1.0] * 4, [-1.0, 0.0, 0.2, 0.6])
    assert evaluated("filtered_nll", batch)[1] == pytest.approx([0.0, 0.0, -1.0, -1.0])
    assert evaluated("filtered_nll", batch, threshold=0.5)[2] == {"imitated_fraction": 0.25}


def test_awr_weighs_by_the_exponential_of_the_advantage() -> None:
    batch = tokens([1.0, 1.0, 1.0], [0.0, math.log(2.0), 9.0])
    _, gradient, metrics = evaluated("awr", batch)
    assert gradient == pytest.approx([-1.0, -2.0, -20.0])
    assert metrics["awr_capped_fraction"] == pytest.approx(1 / 3)
    assert evaluated("awr", batch, temperature=0.5, weight_cap=3.0)[1] == pytest.approx([-1.0, -3.0, -3.0])


def test_the_penalty_on_the_old_policy_begins_at_zero() -> None:
    assert evaluated("kl_old", tokens([1.0, 1.0], [1.0, -1.0]))[:2] == (0.0, [0.0, 0.0])
    loss, gradient, metrics = evaluated("kl_old", tokens([2.0], [1.0]), estimator="k2")
    assert (loss, gradient) == (pytest.approx(math.log(2) ** 2 / 2), pytest.approx([math.log(2)]))
    assert metrics == {"old_kl_nats": pytest.approx(loss)}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_expected_gradients_of_the_estimates(estimator: str) -> None:
    """Over all outcomes of a policy of four: k1 gives 0, k2 the gradient of KL(policy || reference), k3 that of
    KL(reference || policy); k1 and k3 have the divergence as their mean."""
    logits_V = torch.tensor([0.3, -0.2, 0.9, -1.1], dtype=torch.float64, requires_grad=True)
    reference_V = torch.tensor([-0.5, 0.4, 0.1, 0.2], dtype=torch.float64).log_softmax(0)
    logprobs_V = logits_V.log_softmax(0)
    sampled_V = logprobs_V.exp().detach()
    estimates_V = ESTIMATORS[estimator](logprobs_V, reference_V)
    reverse = (logprobs_V.exp() * (logprobs_V - reference_V)).sum()
    forward = (reference_V.exp() * (reference_V - logprobs_V)).sum()
    wanted = {"k1": 0.0 * reverse, "k2": reverse, "k3": forward}[estimator]
    (found_V,) = torch.autograd.grad((sampled_V * estimates_V).sum(), logits_V, retain_graph=True)
    (wanted_V,) = torch.autograd.grad(wanted, logits_V)
    torch.testing.assert_close(found_V, wanted_V)
    if estimator != "k2":
        assert (sampled_V * estimates_V).sum().item() == pytest.approx(reverse.item())


def test_the_unbiased_penalty_has_the_gradient_of_the_divergence_also_off_policy() -> None:
    """Expected over the policy that sampled, which is older than the one before the train step."""
    logits_V = torch.tensor([0.3, -0.2, 0.9, -1.1], dtype=torch.float64, requires_grad=True)
    others = [[1.0, 0.0, -0.5, 0.2], [0.5, 0.1, -0.2, 0.0], [-0.5, 0.4, 0.1, 0.2]]
    sampled_V, old_V, reference_V = torch.tensor(others, dtype=torch.float64).log_softmax(1)
    logprobs_V = logits_V.log_softmax(0)
    batch = tokens([1.0] * 4, [0.0] * 4)._replace(
        logprobs_T=logprobs_V,
        old_logprobs_T=old_V,
        rollout_logprobs_T=sampled_V,
        weights_T=sampled_V.exp(),
        reference_logprobs_T=reference_V,
    )
    loss, _ = build(LossTerm(name="kl_unbiased")).loss(batch)
    divergence = (logprobs_V.exp() * (logprobs_V - reference_V)).sum()
    assert loss.item() == pytest.approx(divergence.item())
    (found_V,) = torch.autograd.grad(loss, logits_V, retain_graph=True)
    (wanted_V,) = torch.autograd.grad(divergence, logits_V)
    torch.testing.assert_close(found_V, wanted_V)


@pytest.mark.parametrize(("estimator", "power"), [("k1", 1), ("k2", 2)])
def test_k1_and_k2_are_not_bounded(estimator: str, power: int) -> None:
    """As in verl's `kl_penalty`, where k3 alone has a bound."""
    logprobs_T = torch.linspace(-60.0, 60.0, 2001, dtype=torch.float64).requires_grad_()
    estimates_T = ESTIMATORS[estimator](logprobs_T, torch.zeros(2001, dtype=torch.float64))
    (gradient_T,) = torch.autograd.grad(estimates_T.sum(), logprobs_T)
    torch.testing.assert_close(estimates_T, logprobs_T**power / power)
    torch.testing.assert_close(gradient_T, logprobs_T.detach() ** (power - 1))
