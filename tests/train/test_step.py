"""The train step on a real tiny model: what the gradient depends on, and what it must not depend on."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tiny_batches import VOCAB, make_batch, make_call, make_model, make_trajectory, pack, unclipped
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3ForCausalLM

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.train.packing.branches import Branch
from quartet.train.step import Learner, NonFiniteError
from quartet.types import Trajectory

pytestmark = pytest.mark.slow

RecipeBuilder = Callable[..., Recipe]


def nothing() -> None:
    """Progress that nobody watches."""


def trajectories(seed: int = 0) -> list[list[Trajectory]]:
    """Two groups of four, one to three turns each, prompts of different lengths."""
    random = np.random.default_rng(seed)

    def ids(length: int) -> list[int]:
        return random.integers(0, 50, length).tolist()

    def member(reward: float) -> Trajectory:
        calls = [
            make_call(ids(int(random.integers(5, 40))), ids(int(random.integers(1, 6))), temperature=0.8)
            for _ in range(random.integers(1, 4))
        ]
        return make_trajectory(calls, reward)

    return [[member(float(index % 3 == 0)) for index in range(4)] for _ in range(2)]


def branches_of(groups: list[list[Trajectory]], recipe: Recipe) -> list[Branch]:
    return pack(make_batch(groups), credit=recipe.credit).branches


def gradient(recipe: Recipe, branches: list[Branch], *, share_prompts: bool = True) -> torch.Tensor:
    """Flat gradient of the first minibatch, before clipping."""
    learner = Learner(make_model(), unclipped(recipe), {"reference": make_model(seed=1)})
    learner.scorer.packed = share_prompts
    learner.gradient(learner.plan(branches, train_step=1, progress=nothing)[0], nothing)
    return torch.cat([p.grad.flatten() for p in learner.model.parameters() if p.grad is not None])


EVERY_TERM = {
    (aggregation, name): () if name == "ppo_clip" or aggregation == "token_mean" else pytest.mark.campaign
    for name in ("ppo_clip", "gspo", "clip_cov", "dpo")
    for aggregation in ("token_mean", "sequence_mean", "branch_mean", "fixed_divisor")
}
"""Every pair of aggregation and term; those in which both differ from the usual one are left to the campaigns."""


@pytest.mark.parametrize(
    ("aggregation", "name"), [pytest.param(*pair, marks=marks) for pair, marks in EVERY_TERM.items()]
)
def test_gradient_does_not_depend_on_the_microbatch_size(recipe: RecipeBuilder, aggregation: str, name: str) -> None:
    own = {"cov_share": 0.1, "cov_low": 0.1} if name == "clip_cov" else {}
    terms = [{"name": name, **own}, {"name": "kl", "weight": 0.1}, {"name": "entropy", "weight": 0.01}]
    loss = {"terms": terms, "aggregation": aggregation}
    if aggregation == "fixed_divisor":
        loss["divisor_tokens"] = 8
    gradients = [
        gradient(setting, branches_of(trajectories(), setting))
        for setting in (recipe(loss=loss, train={"max_tokens_per_microbatch": n}) for n in (50, 128, 4096))
    ]
    assert gradients[0].abs().max() > 1e-3
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["ppo_clip", "gspo", "dpo"])
def test_gradient_does_not_depend_on_shared_prompts(recipe: RecipeBuilder, name: str) -> None:
    setting = recipe(loss={"terms": [name]})
    groups = [[make_trajectory([make_call(range(30), [arm, 7])], float(arm == 0)) for arm in range(4)]]
    apart, shared = (gradient(setting, branches_of(groups, setting), share_prompts=share) for share in (False, True))
    assert apart.abs().max() > 1e-3
    torch.testing.assert_close(shared, apart, atol=1e-5, rtol=1e-4)


def test_an_aggregation_weighs_tokens_branches_or_trajectories(recipe: RecipeBuilder) -> None:
    """One trajectory of 1 token, one of 4 and 5 in two branches: each token 1/10, or 1/3, 1/12 and 1/15, or 1/2 and
    1/18."""
    groups = [[
        make_trajectory([make_call([1], [2])], 1.0),
        make_trajectory([make_call([3], [4] * 4), make_call([5], [6] * 5)], 0.0),
    ]]  # fmt: skip
    weights = {
        "token_mean": {0.1: 10},
        "branch_mean": {1 / 3: 1, 1 / 12: 4, 1 / 15: 5},
        "sequence_mean": {1 / 2: 1, 1 / 18: 9},
    }
    for aggregation, expected in weights.items():
        setting = recipe(loss={"aggregation": aggregation})
        ((microbatch,),) = Learner(make_model(), setting).plan(branches_of(groups, setting), 1, nothing)
        values, counts = microbatch.weights_T.unique(return_counts=True)
        found = {round(value, 6): count for value, count in zip(values.tolist(), counts.tolist(), strict=True)}
        assert found == {round(value, 6): count for value, count in expected.items()}


def test_a_fixed_divisor_is_the_same_in_all_minibatches(recipe: RecipeBuilder) -> None:
    """Rollouts of 1 and of 9 tokens in two branches; divisor 20: each token 1 / (2 * 20), also of a minibatch of more
    tokens. Metrics are means whatever the weights sum to."""
    groups = [[
        make_trajectory([make_call([1], [2])], 1.0),
        make_trajectory([make_call([3], [4] * 4), make_call([5], [6] * 5)], 0.0),
    ]]  # fmt: skip
    setting = recipe(loss={"aggregation": "fixed_divisor", "divisor_tokens": 20})
    learner = Learner(make_model(), setting)
    plan = learner.plan(branches_of(groups, setting), 1, nothing)
    assert plan[0][0].weights_T.tolist() == pytest.approx([1 / 40] * 10)
    metrics, as_mean = learner.update(plan, nothing), Learner(make_model(), recipe())
    expected = as_mean.update(as_mean.plan(branches_of(groups, setting), 1, nothing), nothing)
    for name in ("entropy_nats", "importance_mean", "ratio_mean", "effective_sample_fraction", "gap_k1_nats"):
        assert metrics[name] == pytest.approx(expected[name], rel=1e-5)
    assert metrics["loss"] == pytest.approx(expected["loss"] * 10 / 40, rel=1e-5)


@pytest.mark.parametrize("loss", [{"aggregation": "fixed_divisor"}, {"divisor_tokens": 20}])
def test_a_fixed_divisor_has_a_number_and_a_number_has_a_fixed_divisor(
    recipe: RecipeBuilder, loss: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match=r"divisor_tokens.*go together"):
        recipe(loss=loss)


def test_untrained_tokens_have_exactly_zero_gradient(recipe: RecipeBuilder, tiny_model: Qwen3ForCausalLM) -> None:
    """Targets that were only observed get no gradient, whatever follows them; neither does padding."""
    tiny_model.config.tie_word_embeddings = False
    tiny_model.lm_head.weight = torch.nn.Parameter(tiny_model.lm_head.weight.detach().clone())
    groups = [[make_trajectory([make_call([1, 2, 3], [4]), make_call([1, 2, 3, 4, 5, 6], [7])], 1.0),
               make_trajectory([make_call([1], [8])], 0.0)]]  # fmt: skip
    learner = Learner(tiny_model, recipe())
    seen: list[torch.Tensor] = []
    tiny_model.model.register_forward_hook(
        lambda *hook: (hook[2].last_hidden_state.register_hook(seen.append), None)[1]
    )
    ((microbatch,),) = learner.plan(branches_of(groups, recipe()), 1, nothing)
    learner.gradient([microbatch], nothing)
    (hidden_grad_BLD,) = seen
    predicting = hidden_grad_BLD.abs().sum(-1).nonzero().tolist()
    assert microbatch.ids_BL.tolist() == [[1, 2, 3, 4, 5, 6, 7, 1, 8]]
    assert predicting == [[0, 2], [0, 5], [0, 7]]
    embedding_grad_VD = tiny_model.model.embed_tokens.weight.grad
    assert embedding_grad_VD is not None
    assert embedding_grad_VD.abs().sum(-1).nonzero().flatten().tolist() == [1, 2, 3, 4, 5, 6]


def test_only_steps_away_from_the_old_weights_need_an_extra_pass(recipe: RecipeBuilder) -> None:
    groups = trajectories() * 3
    for train, scored in (({}, [False]), ({"epochs": 2}, [True]), ({"minibatches": 2}, [False, True])):
        setting = recipe(train=train)
        plan = Learner(make_model(), setting).plan(branches_of(groups, setting), 1, nothing)
        assert [{microbatch.old_logprobs_T is not None for microbatch in part} for part in plan] == [
            {s} for s in scored
        ]


def test_minibatches_keep_groups_whole_and_depend_only_on_the_step(recipe: RecipeBuilder) -> None:
    setting = recipe(train={"minibatches": 3})
    groups = [
        [make_trajectory([make_call([1, 2], [10 + number, token])], float(token % 2)) for token in (3, 4, 5)]
        for number in range(6)
    ]
    branches = branches_of(groups, setting)
    learner = Learner(make_model(), setting)

    def dealt(train_step: int) -> list[list[int]]:
        """Every trajectory's group, read from its first response token, per minibatch."""
        parts = [
            torch.cat([m.targets_T for m in part]).tolist() for part in learner.plan(branches, train_step, nothing)
        ]
        return [sorted(token - 10 for token in part if token >= 10) for part in parts]

    assert dealt(1) == dealt(1) != dealt(2)
    assert sorted(group for part in dealt(1) for group in part) == sorted(list(range(6)) * 3)
    for part in dealt(1):
        assert len(part) == 6
        assert all(part.count(group) == 3 for group in part)


def test_second_epoch_is_off_policy_and_gets_clipped(recipe: RecipeBuilder) -> None:
    setting = recipe(
        train={"epochs": 4, "learning_rate": 0.05},
        loss={"terms": {"name": "ppo_clip", "clip_low": 0.01, "clip_high": 0.01}},
    )
    learner = Learner(make_model(), setting)
    metrics = learner.update(learner.plan(branches_of(trajectories(), setting), 1, nothing), nothing)
    assert learner.optimizer_step == 4
    assert metrics["clip_fraction"] > 0
    assert metrics["ratio_mean"] != 1.0


def test_warmup_rises_linearly(recipe: RecipeBuilder) -> None:
    setting = recipe(train={"learning_rate": 0.01, "warmup_steps": 4})
    learner = Learner(make_model(), setting)
    plan = learner.plan(branches_of(trajectories(), setting), 1, nothing)
    rates = [learner.update(plan, nothing)["learning_rate"] for _ in range(6)]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01, 0.01])


def test_the_rate_of_a_train_step_is_that_of_its_last_optimizer_step(recipe: RecipeBuilder) -> None:
    setting = recipe(train={"learning_rate": 0.01, "warmup_steps": 4, "epochs": 2})
    learner = Learner(make_model(), setting)
    plan = learner.plan(branches_of(trajectories(), setting), 1, nothing)
    rates = [learner.update(plan, nothing)["learning_rate"] for _ in range(2)]
    assert rates == pytest.approx([0.005, 0.01])


def test_after_the_warmup_the_rate_may_fall_to_a_tenth(recipe: RecipeBuilder) -> None:
    setting = recipe(train={"learning_rate": 0.01, "warmup_steps": 2, "decay_steps": 3})
    learner = Learner(make_model(), setting)
    plan = learner.plan(branches_of(trajectories(), setting), 1, nothing)
    rates = [learner.update(plan, nothing)["learning_rate"] for _ in range(7)]
    assert rates == pytest.approx([0.005, 0.01, 0.007, 0.004, 0.001, 0.001, 0.001])


def test_effective_sample_fraction(recipe: RecipeBuilder) -> None:
    """Capped at a tiny value all weights are equal: the effective sample is the whole sample."""
    setting = recipe(loss={"terms": {"name": "ppo_clip", "importance_cap": 1e-6}})
    learner = Learner(make_model(), setting)
    metrics = learner.update(learner.plan(branches_of(trajectories(), setting), 1, nothing), nothing)
    assert metrics["effective_sample_fraction"] == pytest.approx(1.0, rel=1e-4)


def test_a_non_finite_gradient_stops_before_the_optimizer(recipe: RecipeBuilder) -> None:
    groups = [[make_trajectory([make_call([1], [2], logprobs=[float("nan")])], 1.0),
               make_trajectory([make_call([1], [3])], 0.0)]]  # fmt: skip
    learner = Learner(make_model(), recipe())
    before = [parameter.detach().clone() for parameter in learner.model.parameters()]
    with pytest.raises(NonFiniteError, match="optimizer step 1"):
        learner.update(learner.plan(branches_of(groups, recipe()), 1, nothing), nothing)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))


def test_an_empty_plan_changes_nothing(recipe: RecipeBuilder) -> None:
    learner = Learner(make_model(), recipe())
    assert learner.update(learner.plan([], 1, nothing), nothing) == {"computed_tokens": 0}
    assert learner.optimizer_step == 0


def test_kl_without_a_reference_is_refused(recipe: RecipeBuilder) -> None:
    with pytest.raises(ConfigError, match="reference"):
        Learner(make_model(), recipe(loss={"terms": ["ppo_clip", "kl"]}))


def test_a_rewarded_token_becomes_likely(recipe: RecipeBuilder) -> None:
    """A bandit whose arm 7 pays: on-policy samples, twenty train steps."""
    setting = recipe(train={"learning_rate": 0.01})
    learner = Learner(make_model(), setting)
    prompt, random = list(range(10, 20)), torch.Generator().manual_seed(0)

    def next_logprobs() -> torch.Tensor:
        with torch.no_grad():
            return learner.model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)

    before = float(next_logprobs()[7].exp())
    for train_step in range(1, 21):
        logprobs_V = next_logprobs()
        arms = [7, *torch.multinomial(logprobs_V.exp(), 15, replacement=True, generator=random).tolist()]
        group = [
            make_trajectory([make_call(prompt, [arm], logprobs=[float(logprobs_V[arm])])], float(arm == 7))
            for arm in arms
        ]
        plan = learner.plan(branches_of([group], setting), train_step, nothing)
        metrics = learner.update(plan, nothing)
        assert abs(metrics["gap_k1_nats"]) < 1e-5
    after = float(next_logprobs()[7].exp())
    assert before < 0.2
    assert after > 0.9


def test_a_rope_that_changes_with_the_longest_sequence_is_refused(recipe: RecipeBuilder) -> None:
    """Branches of different lengths share a call."""
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=128, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    Learner(model, recipe(engine={"max_context_tokens": 128}))
    with pytest.raises(ConfigError, match="max_context_tokens to at most 128"):
        Learner(model, recipe(engine={"max_context_tokens": 129}))
