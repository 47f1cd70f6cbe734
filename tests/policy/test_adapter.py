"""Adapters on disk: `peft`'s files, the merged weights, and adapters that do not fit."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GPT2Model

from quartet.config import Lora
from quartet.errors import CheckpointError, ConfigError
from quartet.policy.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from quartet.policy.load import LoadedPolicy, load_model
from quartet.policy.lora import add_adapter, merged_copy, policy_weights, without_adapter
from quartet.policy.model import make_model
from quartet.policy.save import save_policy
from quartet.policy.tokenizer_files import end_token_ids
from quartet.policy.weights import read_weights, swap_weights

PROMPT = torch.tensor([[5, 9, 17, 3, 200]])


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    return model(input_ids=PROMPT).logits


def randomise(model: torch.nn.Module) -> None:
    """Give the factors B, which are 0 at first, other values."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter, std=0.1)


@pytest.fixture
def base(policy: LoadedPolicy, tmp_path: Path) -> Path:
    save_policy(policy.model, policy.tokenizer, tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def adapted(base: Path, policy: LoadedPolicy, tmp_path: Path) -> tuple[torch.nn.Module, Path]:
    """A model with an adapter that is not zero, and the folder of the adapter."""
    model = load_model(base)
    add_adapter(model, Lora(rank=4, alpha=8), str(base), seed=0)
    randomise(model)
    save_policy(model, policy.tokenizer, tmp_path / "adapter")
    return model, tmp_path / "adapter"


def test_an_adapter_keeps_the_tokens_that_end_a_response(policy: LoadedPolicy, tmp_path: Path) -> None:
    save_policy(policy.model, policy.tokenizer, tmp_path / "base")
    model = load_model(tmp_path / "base")
    model.generation_config.eos_token_id = [3, 5]
    add_adapter(model, Lora(rank=4), str(tmp_path / "base"), seed=0)
    save_policy(model, policy.tokenizer, tmp_path / "adapter")
    assert end_token_ids(tmp_path / "adapter") == [3, 5]


def test_a_new_adapter_changes_nothing_and_its_factors_depend_on_the_seed_alone(base: Path) -> None:
    models = [load_model(base) for _ in range(3)]
    state = torch.get_rng_state()
    for model, seed in zip(models, (0, 0, 1), strict=True):
        add_adapter(model, Lora(rank=4), str(base), seed=seed)
        assert torch.equal(logits(model), logits(load_model(base)))
    assert torch.equal(torch.get_rng_state(), state)
    one, same, other = (dict(model.named_parameters()) for model in models)
    factors = [name for name, parameter in one.items() if parameter.requires_grad]
    assert factors and all(".lora_" in name for name in factors)
    assert all(torch.equal(one[name], same[name]) for name in factors)
    assert any(not torch.equal(one[name], other[name]) for name in factors)


def test_a_folder_with_an_adapter_loads_as_the_sum_of_base_and_adapter(
    adapted: tuple[torch.nn.Module, Path], base: Path
) -> None:
    model, folder = adapted
    assert not list(folder.glob("model*.safetensors"))
    loaded = load_model(folder)
    assert (logits(loaded) - logits(load_model(base))).abs().max() > 0.1
    torch.testing.assert_close(logits(loaded), logits(model), atol=1e-5, rtol=1e-5)
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    stored, ours = read_weights(folder), policy_weights(model)
    assert stored.keys() == ours.keys() and all(torch.equal(stored[name], ours[name]) for name in stored)


def test_peft_reads_the_folder_and_merges_to_the_same_weights(
    adapted: tuple[torch.nn.Module, Path], base: Path
) -> None:
    _, folder = adapted
    theirs = PeftModel.from_pretrained(load_model(base), str(folder)).merge_and_unload()
    ours = read_weights(folder)
    for name, weights in theirs.named_parameters():
        torch.testing.assert_close(ours[name], weights, atol=1e-6, rtol=0)


def test_a_merged_copy_has_no_adapter_and_leaves_the_model_as_it_is(adapted: tuple[torch.nn.Module, Path]) -> None:
    model, folder = adapted
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    plain = merged_copy(model)
    assert [name for name, _ in plain.named_parameters()] == [name for name, _ in load_model(folder).named_parameters()]
    torch.testing.assert_close(logits(plain), logits(model), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_without_its_adapter_a_model_computes_as_its_base(adapted: tuple[torch.nn.Module, Path], base: Path) -> None:
    model, _ = adapted
    with_adapter = logits(model)
    with pytest.raises(RuntimeError), without_adapter(model):
        assert torch.equal(logits(model), logits(load_model(base)))
        raise RuntimeError
    assert torch.equal(logits(model), with_adapter)


def test_an_adapter_of_peft_is_read_also_for_a_model_with_transposed_matrices(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    GPT2LMHeadModel(GPT2Config(**sizes, eos_token_id=None, bos_token_id=None)).save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", fan_in_fan_out=True))
    randomise(model)
    model.eval().save_pretrained(tmp_path / "adapter")
    base.config.save_pretrained(tmp_path / "adapter")
    torch.testing.assert_close(logits(load_model(tmp_path / "adapter")), logits(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "field",
    [
        {"use_dora": True},
        {"rank_pattern": {"q_proj": 2}},
        {"peft_type": "IA3"},
        {"lora_bias": True},
        {"init_lora_weights": "pissa_niter_4"},
        {"trainable_token_indices": {"embed_tokens": [1, 2]}},
    ],
)
def test_other_methods_are_refused(adapted: tuple[torch.nn.Module, Path], field: dict[str, object]) -> None:
    _, folder = adapted
    (folder / "checksums.json").unlink()
    config = folder / ADAPTER_CONFIG
    config.write_text(json.dumps(json.loads(config.read_text()) | field))
    with pytest.raises(CheckpointError, match="another method than plain LoRA"):
        load_model(folder)


def test_an_adapter_with_factors_of_an_embedding_is_refused(adapted: tuple[torch.nn.Module, Path], base: Path) -> None:
    _, folder = adapted
    (folder / "checksums.json").unlink()
    factors = load_file(folder / ADAPTER_WEIGHTS)
    of_embedding = {f"base_model.model.model.embed_tokens.lora_embedding_{one}": torch.ones(2, 2) for one in "AB"}
    save_file(factors | of_embedding, folder / ADAPTER_WEIGHTS)
    with pytest.raises(CheckpointError, match="lora_embedding_A, which is no factor of a matrix"):
        load_model(folder)


def test_an_adapter_of_another_base_is_refused(
    adapted: tuple[torch.nn.Module, Path], base: Path, policy: LoadedPolicy
) -> None:
    _, folder = adapted
    shutil.rmtree(base)
    save_policy(make_model(policy.model.config.vocab_size, hidden_size=64), policy.tokenizer, base)
    with pytest.raises(CheckpointError, match="do not fit the base"):
        load_model(folder)


@pytest.mark.parametrize(
    ("target", "what"), [("none_such", "not found in the base"), ("embed_tokens", "embed_tokens is an embedding")]
)
def test_layers_that_cannot_be_adapted_are_refused(base: Path, target: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        add_adapter(load_model(base), Lora(rank=4, target_modules=[target]), str(base), seed=0)


def test_settings_of_an_adapter_need_a_rank() -> None:
    with pytest.raises(ValueError, match=r"lora.alpha has no effect with lora.rank = 0"):
        Lora(alpha=8)


def test_base_whose_files_lack_the_decoders_prefix(policy: LoadedPolicy, tmp_path: Path) -> None:
    """Files of a decoder that was saved without its output matrix, as some on the hub."""
    decoder = GPT2Model(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=len(policy.tokenizer)))
    decoder.save_pretrained(str(tmp_path / "base"))
    plain, model = load_model(tmp_path / "base"), load_model(tmp_path / "base")
    swap_weights(plain, read_weights(tmp_path / "base"))
    add_adapter(model, Lora(rank=2, target_modules=["c_attn"]), str(tmp_path / "base"), seed=0)
    randomise(model)
    save_policy(model, policy.tokenizer, tmp_path / "adapter")
    served = load_model(tmp_path / "adapter")
    assert (logits(served) - logits(plain)).abs().max() > 1e-3
    torch.testing.assert_close(logits(served), logits(model), atol=1e-5, rtol=1e-5)
