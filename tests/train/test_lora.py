"""Training of an adapter: the base stays frozen and is the reference; checkpoints hold the adapter alone."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from test_step import branches_of, nothing, trajectories
from tiny_batches import make_batch, make_model, make_tokenizer
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from quartet.config import Lora, Recipe
from quartet.errors import CheckpointError, ConfigError
from quartet.policy.canary import measure_canary
from quartet.policy.export import export_adapter, export_whole
from quartet.policy.load import load_model
from quartet.policy.lora import add_adapter, policy_weights
from quartet.policy.weights import cast_copy, read_weights
from quartet.train.assign import credits_of
from quartet.train.checkpoint.files import load_checkpoint, state_bytes, take_snapshot, write_checkpoint
from quartet.train.publish import publish_policy
from quartet.train.step import Learner
from quartet.train.train_batch import train_batch

RecipeBuilder = Callable[..., Recipe]
LORA = {"rank": 4}


def adapted(base: Path | str = "base", seed: int = 0) -> Qwen3ForCausalLM:
    model = make_model()
    add_adapter(model, Lora(**LORA), str(base), seed)
    return model


@pytest.fixture
def setting(recipe: RecipeBuilder) -> Recipe:
    terms = {"terms": ["ppo_clip", {"name": "kl", "weight": 0.1}]}
    return recipe(lora=LORA, loss=terms, train={"learning_rate": 0.01, "minibatches": 2})


def train(learner: Learner, train_step: int) -> dict[str, float]:
    credits = credits_of(learner.recipe)
    batch = replace(make_batch(trajectories(seed=train_step)), train_step=train_step)
    return train_batch(batch, learner, learner.recipe, credits, progress=nothing, phases=lambda _: nullcontext())[1]


def test_only_the_adapter_is_trained(setting: Recipe) -> None:
    learner = Learner(adapted(), setting)
    before = {name: parameter.detach().clone() for name, parameter in learner.model.named_parameters()}
    train(learner, 1)
    changed = {name for name, parameter in learner.model.named_parameters() if not torch.equal(parameter, before[name])}
    assert changed == learner.parameters.keys() == {name for name in before if ".lora_" in name}
    with_gradient = {name for name, parameter in learner.model.named_parameters() if parameter.grad is not None}
    assert with_gradient == changed
    assert set(learner.optimizer.state) == set(learner.parameters.values())


def test_the_base_is_the_reference_also_after_training(setting: Recipe, recipe: RecipeBuilder) -> None:
    """The same log-probs as those of a second model with the initial weights."""
    learner = Learner(adapted(), setting)
    apart = Learner(make_model(), recipe(loss=setting.loss.model_dump()), {"reference": make_model()})
    assert train(learner, 1)["reference_kl_nats"] > 1e-4
    branches = branches_of(trajectories(), setting)
    ours, theirs = (one.passes({"reference"}, branches, nothing)["reference"] for one in (learner, apart))
    for own, other in zip(ours, theirs, strict=True):
        assert own.tolist() == other.tolist()


def test_a_checkpoint_holds_the_adapter_alone_and_resumes_bit_for_bit(setting: Recipe, tmp_path: Path) -> None:
    trained, resumed = Learner(adapted(), setting), Learner(adapted(seed=3), setting)
    expected = state_bytes(trained)
    train(trained, 1)
    write_checkpoint(tmp_path / "state", snapshot := take_snapshot(trained, 1))
    large = {name: tensor for name, tensor in snapshot.tensors.items() if tensor.numel() > 1 and name != "random_state"}
    assert large and all(".lora_" in name for name in large)
    assert sum(tensor.nbytes for tensor in large.values()) == expected
    load_checkpoint(tmp_path / "state", resumed)
    for learner in (trained, resumed):
        train(learner, 2)
    assert all(torch.equal(value, resumed.parameters[name]) for name, value in trained.parameters.items())


@pytest.mark.parametrize(("merge", "dtype"), [(False, torch.float32), (True, torch.float32), (True, torch.bfloat16)])
def test_a_published_policy_loads_as_base_plus_adapter(
    setting: Recipe, tmp_path: Path, merge: bool, dtype: torch.dtype
) -> None:
    """The canary holds, and the weights are within rounding those that were trained."""
    publish_policy(make_model(), make_tokenizer(), tmp_path / "base", [])
    learner = Learner(adapted(tmp_path / "base"), setting)
    train(learner, 1)
    folder = tmp_path / "policy"
    branches = branches_of(trajectories(), setting)
    reduced = torch.bfloat16
    publish_policy(learner.model, make_tokenizer(), folder, branches, dtype=dtype, engine_dtype=reduced, merge=merge)
    assert measure_canary(folder, load_model(folder))[0] < 1e-5
    gap, unexplained = measure_canary(folder, cast_copy(load_model(folder), reduced))
    assert unexplained < 1e-5 < gap, "the trainer scored what an engine in bfloat16 loads"
    stored, trained = read_weights(folder), policy_weights(learner.model)
    for name, weights in stored.items():
        assert weights.dtype is (dtype if merge else torch.float32)
        torch.testing.assert_close(weights, trained[name].to(dtype), atol=1e-6, rtol=0)
    assert (folder / "adapter" / "adapter_model.safetensors").exists() is merge
    export_whole(folder, tmp_path / "whole")
    export_adapter(folder, tmp_path / "adapter")
    for full in ("whole", "adapter"):
        with pytest.raises(CheckpointError, match=f"(?s){full} .*(is not empty|other than a policy)"):
            export_adapter(folder, tmp_path / full)
    expected = fixed_logits(load_model(folder))
    for exported in ("whole", "adapter"):
        found = fixed_logits(AutoModelForCausalLM.from_pretrained(str(tmp_path / exported), dtype=torch.float32))
        atol = 0.05 if dtype is torch.bfloat16 and exported == "adapter" else 1e-5
        torch.testing.assert_close(found, expected, atol=atol, rtol=0)


def test_a_policy_without_an_adapter_has_none_to_export(tmp_path: Path) -> None:
    publish_policy(make_model(), make_tokenizer(), tmp_path / "policy", [])
    with pytest.raises(ConfigError, match="has no adapter"):
        export_adapter(tmp_path / "policy", tmp_path / "adapter")


@torch.no_grad()
def fixed_logits(model: torch.nn.Module) -> torch.Tensor:
    return model(input_ids=torch.tensor([[5, 9, 17, 3]])).logits


def test_a_critic_of_its_own_has_no_adapter_and_learns_with_all_its_weights(recipe: RecipeBuilder) -> None:
    terms = {"terms": ["ppo_clip", "value"]}
    learner = Learner(adapted(), recipe(lora=LORA, loss=terms, credit="gae", critic="model"))
    assert learner.critic is not None
    before = {name: weights.detach().clone() for name, weights in learner.critic.module.named_parameters()}
    assert not any(".lora_" in name for name in before)
    for train_step in (1, 2):  # the head is 0 at first, so no gradient goes below it
        train(learner, train_step)
    unused = {"decoder.embed_tokens.weight"}
    after = dict(learner.critic.module.named_parameters())
    assert all(not torch.equal(after[name], weights) for name, weights in before.items() if name not in unused)
    learner.reset()
    assert not after["head.weight_D"].any()
    policy = policy_weights(learner.model)
    layers = {name.removeprefix("decoder."): one for name, one in after.items() if name.startswith("decoder.")}
    assert layers and all(torch.equal(one, policy[f"model.{name}"]) for name, one in layers.items())
