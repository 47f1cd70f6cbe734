"""Every loss term that ships: its formula with numpy, its gradient by finite differences, and what has no effect."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from loss_batches import LEAVES, NUM_TOKENS, SETTINGS, branches_of, objective_of, rows, slopes

from quartet.config import LossTerm
from quartet.registry import build, find, names
from quartet.train.loss.base import LossInput
from quartet.train.objective import means
from quartet.train.packing.microbatch import USE_NUMBERS
from quartet.types import MemberUse

SHIPPED = [name for name in names("loss_term") if find("loss_term", name).__module__.startswith("quartet.train.loss")]
OF_ADVANTAGES = (
    *(
        "ppo_clip",
        "ppo_confident",
        "gspo",
        "cispo",
        "sapo",
        "ppo_interpolated",
        "ppo_mixed",
        "clip_cov",
        "dpo",
        "filtered_nll",
    ),
)
Columns = dict[str, np.ndarray]
Formula = Callable[[Columns, Columns], np.ndarray]
"""From the columns and the columns at which constants are taken, to the loss of each token before its weight."""
SEEDS = (0, 1, 2)


def importance(c: Columns) -> np.ndarray:
    return np.minimum(np.exp(c["old_logprobs_T"] - c["rollout_logprobs_T"]), 1.0)


def clipped(
    log_ratio: np.ndarray, advantages: np.ndarray, low: float | np.ndarray = 0.2, high: float | np.ndarray = 0.28
) -> np.ndarray:
    """PPO's surrogate with the dual clip 3."""
    ratio = np.exp(log_ratio)
    objective = np.minimum(ratio * advantages, np.clip(ratio, 1 - low, 1 + high) * advantages)
    return np.where(advantages < 0, np.maximum(objective, 3.0 * advantages), objective)


def ppo_clip(c: Columns, at: Columns) -> np.ndarray:
    return -importance(c) * clipped(c["logprobs_T"] - c["old_logprobs_T"], c["advantages_T"])


def ppo_confident(c: Columns, at: Columns) -> np.ndarray:
    branches, probabilities = c["branches_T"], np.exp(at["old_logprobs_T"])
    confidence = np.array([probabilities[branches == branch].mean() for branch in branches])
    bound = (0.05 + 0.15 / (1 + np.exp(-4 * (1 - confidence)))) / 0.2
    return -importance(c) * clipped(c["logprobs_T"] - c["old_logprobs_T"], c["advantages_T"], 0.2 * bound, 0.28 * bound)


def gspo(c: Columns, at: Columns) -> np.ndarray:
    ratios, branches = at["logprobs_T"] - at["old_logprobs_T"], c["branches_T"]
    means = np.array([ratios[branches == branch].mean() for branch in branches])
    return -importance(c) * clipped(means + c["logprobs_T"] - at["logprobs_T"], c["advantages_T"])


def cispo(c: Columns, at: Columns) -> np.ndarray:
    ratio = np.clip(np.exp(at["logprobs_T"] - at["old_logprobs_T"]), 0.8, 1.3)
    return -importance(c) * ratio * c["advantages_T"] * c["logprobs_T"]


def ppo_interpolated(c: Columns, at: Columns) -> np.ndarray:
    share = 1 / np.maximum(c["lags_T"], 1)
    proximal = share * c["rollout_logprobs_T"] + (1 - share) * at["logprobs_T"]
    weight = np.minimum(np.exp(proximal - c["rollout_logprobs_T"]), 1.0)
    return -weight * clipped(c["logprobs_T"] - proximal, c["advantages_T"])


def covariance(at: Columns) -> np.ndarray:
    logprobs, advantages = at["logprobs_T"], at["advantages_T"]
    return (logprobs - logprobs.mean()) * (advantages - advantages.mean())


def clip_cov(c: Columns, at: Columns) -> np.ndarray:
    ratio, advantages, found = np.exp(at["logprobs_T"] - at["old_logprobs_T"]), at["advantages_T"], covariance(at)
    stopped = ((ratio > 1.28) & (advantages > 0)) | ((ratio < 0.8) & (advantages < 0))
    candidates = np.flatnonzero((found > 0.05) & (found < 5) & ~stopped)
    left_out = candidates[np.argsort(-found[candidates])][: max(1, int(0.2 * NUM_TOKENS))]
    return np.where(np.isin(np.arange(NUM_TOKENS), left_out), 0.0, ppo_clip(c, at))


def kl_cov(c: Columns, at: Columns) -> np.ndarray:
    log_ratio = c["logprobs_T"] - c["old_logprobs_T"]
    chosen = np.isin(np.arange(NUM_TOKENS), np.argsort(-covariance(at))[: max(1, int(0.2 * NUM_TOKENS))])
    return importance(c) * (np.where(chosen, np.abs(log_ratio), 0.0) - np.exp(log_ratio) * c["advantages_T"])


def k3(logprobs: np.ndarray, reference: np.ndarray) -> np.ndarray:
    return np.exp(reference - logprobs) - (reference - logprobs) - 1


def dpo(c: Columns, at: Columns) -> np.ndarray:
    trajectories, gains = c["trajectories_T"], c["logprobs_T"] - c["reference_logprobs_T"]
    facts = {
        number: (c["groups_T"][trajectories == number][0], c["advantages_T"][trajectories == number][0],
                 gains[trajectories == number].sum())
        for number in set(trajectories.tolist())
    }  # fmt: skip
    losses = [
        np.log1p(np.exp(-0.1 * (gain - other)))
        for group, advantage, gain in facts.values()
        for other_group, other_advantage, other in facts.values()
        if group == other_group and advantage > other_advantage
    ]
    return np.full(NUM_TOKENS, np.mean(losses))  # of weights that sum to 1


def value(c: Columns, at: Columns) -> np.ndarray:
    values, old, returns = c["values_T"], c["old_values_T"], c["returns_T"]
    moved = old + np.clip(values - old, -0.2, 0.2)
    return 0.5 * np.maximum((values - returns) ** 2, (moved - returns) ** 2)


def sapo(c: Columns, at: Columns) -> np.ndarray:
    tau = np.where(c["advantages_T"] > 0, 1.0, 1.05)
    gate = 4 / tau / (1 + np.exp(-tau * (np.exp(c["logprobs_T"] - c["old_logprobs_T"]) - 1)))
    return -importance(c) * gate * c["advantages_T"]


def ppo_mixed(c: Columns, at: Columns) -> np.ndarray:
    ratio = np.exp(c["logprobs_T"] - c["rollout_logprobs_T"])
    center = np.exp(c["old_logprobs_T"] - c["rollout_logprobs_T"])
    advantages = c["advantages_T"]
    return -np.minimum(ratio * advantages, np.clip(ratio, center - 0.2, center + 0.2) * advantages)


FORMULAS: dict[str, Formula] = {
    "ppo_clip": ppo_clip,
    "ppo_confident": ppo_confident,
    "gspo": gspo,
    "cispo": cispo,
    "ppo_interpolated": ppo_interpolated,
    "clip_cov": clip_cov,
    "kl_cov": kl_cov,
    "kl": lambda c, at: k3(c["logprobs_T"], c["reference_logprobs_T"]),
    "kl_unbiased": lambda c, at: (
        np.exp(c["logprobs_T"] - c["rollout_logprobs_T"]) * k3(c["logprobs_T"], c["reference_logprobs_T"])
    ),
    "kl_old": lambda c, at: k3(c["logprobs_T"], c["old_logprobs_T"]),
    "awr": lambda c, at: -np.exp(c["advantages_T"]) * c["logprobs_T"],
    "nll": lambda c, at: -c["logprobs_T"],
    "entropy": lambda c, at: -c["entropies_T"],
    "value": value,
    "dpo": dpo,
    "sapo": sapo,
    "ppo_mixed": ppo_mixed,
    "filtered_nll": lambda c, at: np.where(c["advantages_T"] > 0, -c["logprobs_T"], 0.0),
}


def columns_of(tokens: LossInput) -> Columns:
    return {name: column.detach().numpy().copy() for name, column in tokens._asdict().items() if column is not None}


def test_every_term_has_a_formula_here_and_a_source() -> None:
    assert set(SHIPPED) == set(FORMULAS)
    assert all(find("loss_term", name).source for name in SHIPPED)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SHIPPED)
def test_the_loss_is_the_published_formula(name: str, seed: int) -> None:
    tokens = branches_of(seed=seed)
    loss, _ = slopes(objective_of(name), tokens)
    columns = columns_of(tokens)
    assert loss == pytest.approx(float(FORMULAS[name](columns, columns).mean()), rel=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SHIPPED)
def test_the_gradient_is_that_of_finite_differences_of_the_formula(name: str, seed: int) -> None:
    tokens, step = branches_of(seed=seed), 1e-6
    _, gradients = slopes(objective_of(name), tokens)
    at = columns_of(tokens)
    assert any(gradients[leaf].abs().max() > 1e-4 for leaf in LEAVES)
    for leaf in LEAVES:
        for place in range(NUM_TOKENS):
            ends = []
            for sign in (1, -1):
                moved = columns_of(tokens)
                moved[leaf][place] += sign * step
                ends.append(FORMULAS[name](moved, at).mean())
            numeric = (ends[0] - ends[1]) / (2 * step)
            assert gradients[leaf][place].item() == pytest.approx(numeric, abs=1e-7, rel=1e-4), (leaf, place)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_cut_into_microbatches_has_no_effect(name: str) -> None:
    """Pairs, ranks and means are those of the whole minibatch also where its parts know nothing of each other."""
    whole_loss, whole = slopes(objective_of(name), branches_of())
    for cut in (1, 3, 5):
        loss, parts = slopes(objective_of(name), branches_of(range(cut)), branches_of(range(cut, 7)))
        assert loss == pytest.approx(whole_loss, rel=1e-9)
        for leaf in LEAVES:
            torch.testing.assert_close(parts[leaf], whole[leaf], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_order_of_branches_and_of_tokens_has_no_effect(name: str) -> None:
    order = [4, 6, 0, 3, 5, 1, 2]
    loss, straight = slopes(objective_of(name), branches_of())
    turned_loss, turned = slopes(objective_of(name), branches_of(order))
    positions = torch.cat([(branches_of().branches_T == number).nonzero()[:, 0] for number in order])
    shuffle = torch.randperm(NUM_TOKENS, generator=torch.Generator().manual_seed(3))
    shuffled_loss, shuffled = slopes(objective_of(name), rows(branches_of(), shuffle))
    assert turned_loss == pytest.approx(loss, rel=1e-9) and shuffled_loss == pytest.approx(loss, rel=1e-9)
    for leaf in LEAVES:
        torch.testing.assert_close(turned[leaf], straight[leaf][positions], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(shuffled[leaf], straight[leaf][shuffle], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_numbers_of_groups_and_rollouts_have_no_effect(name: str) -> None:
    tokens = branches_of()
    assert tokens.groups_T is not None and tokens.trajectories_T is not None
    renamed = tokens._replace(groups_T=9 - 4 * tokens.groups_T, trajectories_T=40 - 7 * tokens.trajectories_T)
    (loss, straight), (other, turned) = slopes(objective_of(name), tokens), slopes(objective_of(name), renamed)
    assert other == pytest.approx(loss, rel=1e-12)
    for leaf in LEAVES:
        torch.testing.assert_close(turned[leaf], straight[leaf], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SHIPPED)
def test_members_that_a_term_does_not_apply_to_get_no_gradient_and_change_nothing(name: str) -> None:
    """Anchors, absurd in every respect, beside fresh members."""
    tokens = branches_of()
    absurd = {leaf: getattr(tokens, leaf)[:5] * 7 - 3 for leaf in (*LEAVES, "advantages_T", "rollout_logprobs_T")}
    beside = rows(tokens, torch.arange(5))._replace(**absurd)
    both = LossInput(
        **{
            field: torch.cat([column, getattr(beside, field)])
            for field, column in tokens._asdict().items()
            if column is not None
        }
    )._replace(branches_T=torch.cat([tokens.branches_T, 7 + beside.branches_T]))
    fresh, anchor = USE_NUMBERS[MemberUse.FRESH], USE_NUMBERS[MemberUse.ANCHOR]
    uses_T = torch.tensor([fresh] * NUM_TOKENS + [anchor] * 5)
    loss, alone = slopes(objective_of(name), tokens)
    other, together = slopes(objective_of(name), both, uses=[uses_T])
    assert other == pytest.approx(loss, rel=1e-9)
    for leaf in LEAVES:
        torch.testing.assert_close(together[leaf][:NUM_TOKENS], alone[leaf], rtol=1e-9, atol=1e-12)
        assert not together[leaf][NUM_TOKENS:].any()


@pytest.mark.parametrize("name", OF_ADVANTAGES)
def test_a_policy_loss_has_no_gradient_without_advantages(name: str) -> None:
    tokens = branches_of()
    _, gradients = slopes(objective_of(name), tokens._replace(advantages_T=torch.zeros_like(tokens.advantages_T)))
    assert not any(gradients[leaf].any() for leaf in LEAVES)


@pytest.mark.parametrize("name", SHIPPED)
def test_absurd_log_probs_stay_finite(name: str) -> None:
    tokens = branches_of()
    far = torch.linspace(-900.0, 0.0, NUM_TOKENS, dtype=torch.float64)
    wild = tokens._replace(logprobs_T=far, rollout_logprobs_T=far.flip(0), reference_logprobs_T=far.roll(5))
    loss, gradients = slopes(objective_of(name), wild)
    assert np.isfinite(loss)
    assert all(gradients[leaf].isfinite().all() for leaf in LEAVES)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_declared_metric_is_recorded_and_is_a_mean(name: str) -> None:
    """Of one microbatch as of two, and with weights of another sum."""
    part = find("loss_term", name)
    tokens = branches_of()
    fresh_T = torch.full_like(tokens.branches_T, USE_NUMBERS[MemberUse.FRESH])
    _, sums = objective_of(name).loss(tokens, fresh_T)
    declared = {metric.removeprefix("train/") for metric in part.metrics}
    assert declared <= sums.keys()
    _, doubled = objective_of(name).loss(tokens._replace(weights_T=2 * tokens.weights_T), fresh_T)
    once, twice = means(sums), means(doubled)
    for metric in declared:
        assert twice[metric] == pytest.approx(once[metric], rel=1e-6, abs=1e-12)


def test_the_settings_of_this_file_are_those_of_terms() -> None:
    for name, settings in SETTINGS.items():
        assert build(LossTerm.model_validate({"name": name, **settings}))
