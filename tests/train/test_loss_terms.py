"""Loss terms beside the policy's: closed forms, the weighted sum, and the members that a term applies to."""

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from tiny_batches import make_batch, make_call, make_model, make_trajectory, pack, unclipped

from quartet.config import Loss, LossTerm
from quartet.recipe.file import load_recipe
from quartet.registry import build
from quartet.train.aggregation import token_weights
from quartet.train.loss.base import LossInput
from quartet.train.objective import Objective, weight_at
from quartet.train.packing.branches import Branch
from quartet.train.packing.microbatch import USE_NUMBERS
from quartet.train.step import Learner
from quartet.types import Batch, MemberUse, ReplayRule

RECIPES = Path(__file__).parents[2] / "recipes"
FRESH, REPLAY, ANCHOR = MemberUse
HALF = torch.tensor([0.5, 0.5])


def nothing() -> None:
    pass


def tokens(**fields: torch.Tensor) -> LossInput:
    """Two tokens with the weight 1/2 each, on-policy, with the advantages 1 and -1."""
    logprobs_T = torch.tensor([-1.0, -3.0], requires_grad=True)
    old_T = logprobs_T.detach()
    plain = LossInput(logprobs_T, old_T, old_T, torch.tensor([1.0, -1.0]), HALF, torch.tensor([0, 1]))
    return plain._replace(**fields)


def test_entropy_is_a_bonus() -> None:
    entropies_T = torch.tensor([0.2, 0.6], requires_grad=True)
    loss, _ = build(LossTerm(name="entropy")).loss(tokens(entropies_T=entropies_T))
    loss.backward()
    assert loss.item() == pytest.approx(-0.4)
    assert entropies_T.grad is not None and entropies_T.grad.tolist() == [-0.5, -0.5]


def test_kl_is_k3_of_the_reference() -> None:
    """log ratio 1 and 0: e - 2 and 0."""
    batch = tokens(reference_logprobs_T=torch.tensor([0.0, -3.0]))
    loss, metrics = build(LossTerm(name="kl")).loss(batch)
    assert loss.item() == pytest.approx((2.718282 - 2) / 2, rel=1e-5)
    assert metrics == {"reference_kl_nats": loss.item()}


def test_nll_is_the_mean_of_minus_log_prob_whatever_the_advantage() -> None:
    batch = tokens()
    loss, metrics = build(LossTerm(name="nll")).loss(batch)
    loss.backward()
    assert (loss.item(), metrics) == (2.0, {"nll_nats": 2.0})
    assert batch.logprobs_T.grad is not None and batch.logprobs_T.grad.tolist() == [-0.5, -0.5]


def test_a_value_that_moved_too_far_gets_no_gradient() -> None:
    """Returns 1: value 0.1 from 0 gives 0.81; value 0.5 from 0, clipped to 0.2, gives max(0.25, 0.64)."""
    values_T = torch.tensor([0.1, 0.5], requires_grad=True)
    batch = tokens(values_T=values_T, old_values_T=torch.zeros(2), returns_T=torch.ones(2))
    loss, metrics = build(LossTerm(name="value")).loss(batch)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * (0.81 + 0.64) / 2)
    assert metrics == {"value_loss": loss.item()}
    assert values_T.grad is not None and values_T.grad.tolist() == pytest.approx([-0.45, 0.0])


@pytest.mark.parametrize("name", ["kl", "entropy", "value"])
def test_a_term_without_its_pass_says_so(name: str) -> None:
    with pytest.raises(AssertionError, match="pass"):
        build(LossTerm(name=name)).loss(tokens())


def test_the_loss_is_the_weighted_sum_of_its_terms_and_needs_their_passes() -> None:
    section = Loss.model_validate(
        {"terms": ["ppo_clip", {"name": "kl", "weight": 0.5}, {"name": "entropy", "weight": 0.1}]}
    )
    batch = tokens(entropies_T=torch.tensor([0.2, 0.6]), reference_logprobs_T=torch.tensor([0.0, -3.0]))
    objective = Objective(section)
    loss, metrics = objective.loss(batch, torch.zeros(2, dtype=torch.long))
    assert objective.needs == {"entropies", "reference"}
    assert loss.item() == pytest.approx(0.0 + 0.5 * (2.718282 - 2) / 2 - 0.1 * 0.4, rel=1e-5)
    assert {"clip_fraction", "reference_kl_nats"} <= metrics.keys()


@pytest.mark.parametrize(
    ("train_step", "weight"), [(1, 0.5), (50, 0.5), (60, 0.45), (75, 0.375), (100, 0.25), (101, 0.5), (1000, 0.5)]
)
def test_a_weight_is_linear_between_its_points_and_constant_outside(train_step: int, weight: float) -> None:
    points = [[50, 1.0], [100, 0.5], [101, 1.0]]
    term = LossTerm.model_validate({"name": "kl", "weight": 0.5, "weight_points": points})
    assert weight_at(term, train_step) == pytest.approx(weight)
    reference_T = torch.tensor([0.0, -3.0])
    loss, _ = Objective(Loss(terms=[term])).loss(
        tokens(reference_logprobs_T=reference_T), torch.zeros(2, dtype=torch.long), train_step=train_step
    )
    assert loss.item() == pytest.approx(weight * (2.718282 - 2) / 2, rel=1e-5)


def test_points_of_a_weight_must_rise() -> None:
    with pytest.raises(ValueError, match="must rise"):
        LossTerm.model_validate({"name": "kl", "weight_points": [[10, 1.0], [10, 0.5]]})


def test_the_two_divergences_of_remix_are_a_convex_mix_until_the_reincarnation() -> None:
    """The paper's 50 and 100 of 350 train steps are 15 and 30 here: lambda = 1 until 15, 0.5 at 30, then 1 again."""
    recipe = load_recipe(RECIPES / "remix" / "recipe.toml")
    anchor, previous = (next(term for term in recipe.loss.terms if term.name == name) for name in ("kl", "kl_old"))
    shares = {step: weight_at(anchor, step) / anchor.weight for step in (1, 15, 18, 30, 31, 100)}
    assert shares == pytest.approx({1: 1.0, 15: 1.0, 18: 0.9, 30: 0.5, 31: 1.0, 100: 1.0})
    for train_step in range(1, 110):
        assert weight_at(anchor, train_step) + weight_at(previous, train_step) == pytest.approx(anchor.weight)
    reference = recipe.reference
    assert reference.train_steps_per_move == 30 and reference.max_moves == 1
    assert recipe.replay.settings["last_train_step"] == 30


def test_a_term_is_blind_to_members_that_are_there_for_something_else() -> None:
    """Of a fresh and an anchored token `ppo_clip` sees the first, `nll` the second."""
    uses_T = torch.tensor([USE_NUMBERS[FRESH], USE_NUMBERS[ANCHOR]])
    batch = tokens()
    loss, metrics = Objective(Loss.model_validate({"terms": ["ppo_clip", {"name": "nll", "weight": 2}]})).loss(
        batch, uses_T
    )
    loss.backward()
    assert metrics["nll_nats"] == pytest.approx(1.5)
    assert batch.logprobs_T.grad is not None and batch.logprobs_T.grad.tolist() == [-0.5, -1.0]


def test_nll_may_imitate_replayed_members() -> None:
    uses_T = torch.tensor([USE_NUMBERS[REPLAY], USE_NUMBERS[FRESH]])
    section = Loss.model_validate({"terms": {"name": "nll", "uses": ["replay"]}})
    assert Objective(section).loss(tokens(), uses_T)[0].item() == 0.5


def batch_of_all_uses() -> Batch:
    """Two fresh members of 1 and 3 tokens, a replayed one of 2, an anchor of 5."""
    lengths = (1, 3, 2, 5)
    members = [make_trajectory([make_call([1, n], range(n))], float(n > 1)) for n in lengths]
    batch = make_batch([members])
    (group,) = batch.groups
    rules = (None, None, ReplayRule.STORED, ReplayRule.ANCHOR)
    marked = [replace(member, replay=rule) for member, rule in zip(group.members, rules, strict=True)]
    return replace(batch, groups=[replace(group, members=marked)])


def shares(branches: list[Branch], **section: object) -> dict[tuple[MemberUse, int], float]:
    """Weight of one token, by use and length."""
    weights = token_weights(branches, Loss.model_validate(section))
    return {(b.use, b.num_trained_tokens): weight for b, weight in zip(branches, weights, strict=True)}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"aggregation": "token_mean"}, [1 / 6, 1 / 6, 1 / 6, 1 / 5]),
        ({"aggregation": "sequence_mean"}, [1 / 3, 1 / 9, 1 / 6, 1 / 5]),
        ({"aggregation": "token_mean", "replay_share": 0.25}, [0.75 / 4, 0.75 / 4, 0.25 / 2, 1 / 5]),
        ({"aggregation": "branch_mean", "replay_share": 0.5}, [0.5 / 2, 0.5 / 6, 0.5 / 2, 1 / 5]),
    ],
)
def test_uses_are_normalised_apart(section: dict[str, object], expected: list[float]) -> None:
    found = shares(pack(batch_of_all_uses()).branches, **section)
    assert list(found) == [(FRESH, 1), (FRESH, 3), (REPLAY, 2), (ANCHOR, 5)]
    assert list(found.values()) == pytest.approx(expected)


def test_a_use_that_is_missing_leaves_its_share_to_the_other() -> None:
    branches = pack(batch_of_all_uses()).branches
    assert shares(branches[:2], replay_share=0.25) == {(FRESH, 1): 0.25, (FRESH, 3): 0.25}
    assert shares(branches[2:3], replay_share=0.25) == {(REPLAY, 2): 0.5}


def test_an_anchor_is_in_no_baseline_and_has_no_advantage() -> None:
    with_anchor = pack(batch_of_all_uses()).branches
    batch = batch_of_all_uses()
    (group,) = batch.groups
    without = pack(replace(batch, groups=[replace(group, members=group.members[:3])])).branches
    for one, other in zip(with_anchor, without, strict=False):
        assert one.advantages_L.tolist() == other.advantages_L.tolist()
    assert with_anchor[3].num_trained_tokens == 5 and not with_anchor[3].advantages_L.any()


def test_an_anchor_moves_the_weights_by_its_own_term_only(recipe) -> None:
    """The policy's gradient is what it is without the anchor; with `nll` alone it is the anchor's."""
    batch = batch_of_all_uses()
    (group,) = batch.groups
    no_anchor = replace(batch, groups=[replace(group, members=group.members[:3])])

    def gradient(terms: list[str], of: Batch) -> torch.Tensor:
        pool = {"name": "success_pool", "rule": "anchor" if "nll" in terms else "stored"}
        learner = Learner(make_model(), unclipped(recipe(loss={"terms": terms}, replay=pool)))
        learner.gradient(learner.plan(pack(of).branches, 1, nothing)[0], nothing)
        return torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None])

    policy, anchored = gradient(["ppo_clip"], no_anchor), gradient(["nll"], batch)
    torch.testing.assert_close(gradient(["ppo_clip"], batch), policy, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(gradient(["ppo_clip", "nll"], batch), policy + anchored, atol=1e-6, rtol=1e-4)
    assert anchored.abs().max() > 1e-3
