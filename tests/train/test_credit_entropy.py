"""Credits that read entropies: EAR of ETTRL and the hybrid advantage of ECHO, against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from credit_cases import Kept, credit_of, member
from msgspec.structs import replace
from test_majority_vote import voter
from tiny_batches import make_batch

from quartet.config import Credit, LossTerm
from quartet.registry import build
from quartet.train.assign import assign
from quartet.train.certainty import certainty
from quartet.train.credit_batch import CreditBatch
from quartet.train.loss.base import LossInput
from quartet.train.loss.ppo_confident import tail_means
from quartet.train.packing.branches import pack_batch
from quartet.types import Trajectory


def assigned(credit: Credit, entropies: list[list[float]], *group: Trajectory) -> CreditBatch:
    """Return a group's batch with its credit, from the entropies of each rollout's tokens."""
    batch = make_batch([group])
    part, kept = build(credit), Kept(None)
    assign(batch, pack_batch(batch, 9), [part, kept], {"entropies": [np.array(one) for one in entropies]})
    return kept.batch


def spoken(reward: float, logprobs: list[float]) -> Trajectory:
    rollout = member(reward, tokens=2)
    return replace(
        rollout, calls=[replace(one, response=replace(one.response, logprobs=logprobs)) for one in rollout.calls]
    )


def test_the_factor_is_one_and_a_half_one_and_a_half_of_it():
    np.testing.assert_allclose(certainty(np.array([0.2, 0.4, 0.6])), [1.5, 1.0, 0.5])


@pytest.mark.parametrize(
    ("entropies", "factors"),
    [([0.0, 0.0], [1, 1]), ([0.1, 0.7], [1.75, 0.25]), ([0.0, 0.0, 0.9], [2, 2, 0]), ([0.5, np.nan], [1, 1])],
    ids=["certain", "two", "no_negative_factor", "unknown"],
)
def test_factors(entropies: list[float], factors: list[float]):
    np.testing.assert_allclose(certainty(np.array(entropies)), factors, atol=1e-12)


def test_an_uncertain_rollout_gets_a_smaller_advantage():
    found = assigned(credit_of("ear"), [[0.1, 0.3], [0.4, 0.4], [0.6, 0.6]], member(1), member(0), member(0))
    advantages = 2 / np.sqrt(3) * np.array([1, -0.5, -0.5]) * [1.5, 1, 0.5]
    np.testing.assert_allclose(found.advantages_T, np.repeat(advantages, 2), rtol=1e-5)


def test_with_majority_labels_the_reward_is_agreement():
    majority = credit_of("ear", labels="majority")
    found = assigned(majority, [[0.4, 0.4]] * 2, member(1), member(0))
    assert found.advantages_T.tolist() == [0] * 4, "without an answer nobody agrees"
    voters = [voter("a"), voter("a", 1.0), replace(voter("b"), role="judge"), voter("b")]
    found = assigned(majority, [[0.4, 0.4]] * 4, *voters)
    third = 1 / np.sqrt(3)
    np.testing.assert_allclose(found.advantages_T, np.repeat([third, third, 0, -2 * third], 2), rtol=1e-5)
    assert found.metrics == {"vote_share": 3 / 4, "vote_reward": 1 / 3}


def test_an_uncertain_token_of_echo_gets_a_fifth_more_at_most():
    """The first token has the higher entropy and the lower probability: z = 1 / sqrt(2) each way, S = +-sqrt(2)."""
    found = assigned(credit_of("echo"), [[0.9, 0.1], [0.5, 0.5]], spoken(1, [-3.0, -0.1]), spoken(0, [-0.5, -0.5]))
    high, low = found.advantages_T[:2]
    assert high > np.sqrt(0.5) > low > 0
    capped = assigned(credit_of("echo", max_score=1.0), [[9.0, 0], [0, 0]], spoken(1, [-9, 0]), spoken(0, [0, 0]))
    assert capped.advantages_T[0] == pytest.approx(np.sqrt(0.5) * 1.1, rel=1e-5)


def test_without_weight_echo_is_grpo():
    found = assigned(credit_of("echo", weight=0.0), [[0.9, 0.1], [0.5, 0.5]], member(1), member(0))
    np.testing.assert_allclose(found.advantages_T, np.sqrt(0.5) * np.array([1, 1, -1, -1]), rtol=1e-5)


@pytest.mark.parametrize(("confidence", "bound"), [(1e-9, 0.1973), (0.5, 0.1821), (1.0, 0.1250)])
def test_the_clip_bound_falls_with_the_confidence_of_the_tail(confidence: float, bound: float):
    old = torch.tensor([confidence]).log()
    new = (old + 1.0).requires_grad_()
    one, first = torch.tensor([1.0]), torch.tensor([0])
    section = LossTerm.model_validate(
        {"name": "ppo_confident", "clip_low": 0.2, "clip_high": 0.2, "importance": "none"}
    )
    loss, _ = build(section).loss(LossInput(new, old, old, one, one, first))
    assert loss.item() == pytest.approx(-(1 + bound), abs=1e-4)


def test_the_tail_is_that_of_the_branch():
    means = tail_means(torch.tensor([9.0, 1.0, 3.0, 5.0]), torch.tensor([0, 0, 0, 1]), 2)
    assert means.tolist() == [2.0, 2.0, 2.0, 5.0]
