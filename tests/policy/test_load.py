"""Policies on disk: round trip, tied weights, other architectures, and a clear error for everything that is wrong."""

import errno
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from quartet.errors import CheckpointError, ConfigError
from quartet.files.whole_folder import CHECKSUMS
from quartet.policy.canary import write_canary
from quartet.policy.load import LoadedPolicy, load_model, load_policy
from quartet.policy.model import make_model
from quartet.policy.save import make_place, save_policy
from quartet.policy.weights import cast_copy, cast_weights, read_weights, swap_weights
from tests.full_disk import max_file_size

PROMPT = torch.tensor([[5, 9, 17, 3, 200]])


@pytest.fixture
def copied(policy_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(policy_folder, tmp_path / "copy"))


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(input_ids=PROMPT).logits


def test_a_cast_rounds_weights_and_not_the_frequencies_of_positions(policy: LoadedPolicy) -> None:
    """`Module.to` rounds both, which turns far tokens by other angles."""
    model, far = policy.model, torch.arange(2000)[None]
    exact, copied = model.model.rotary_emb(torch.zeros(1), far), cast_copy(model, torch.bfloat16)
    cast_weights(model, torch.bfloat16)
    for reduced in (model, copied):
        assert {parameter.dtype for parameter in reduced.parameters()} == {torch.bfloat16}
        torch.testing.assert_close(reduced.model.rotary_emb(torch.zeros(1), far), exact, atol=0, rtol=0)
    rounded = model.bfloat16().model.rotary_emb(torch.zeros(1), far)
    assert (rounded[0] - exact[0]).abs().max() > 0.2


def test_saved_policy_loads_unchanged(policy: LoadedPolicy, tmp_path: Path):
    save_policy(policy.model, policy.tokenizer, tmp_path / "again")
    again = load_policy(tmp_path / "again")
    with patch.object(F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention) as attention:
        found = logits(again.model)
    assert attention.called
    assert torch.equal(found, logits(policy.model))
    assert again.tokenizer.get_vocab() == policy.tokenizer.get_vocab()
    assert again.model.dtype == torch.float32
    assert not again.model.training


def test_saving_replaces_a_policy_and_leaves_nothing_behind(policy: LoadedPolicy, tmp_path: Path):
    folder = tmp_path / "run" / "policy"
    save_policy(policy.model, policy.tokenizer, folder)
    (folder / "old.txt").write_text("from the earlier policy")
    save_policy(policy.model, policy.tokenizer, folder)
    assert not (folder / "old.txt").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]


def test_saving_never_overwrites_something_else(policy: LoadedPolicy, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(CheckpointError, match="other than a policy"):
        save_policy(policy.model, policy.tokenizer, tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("foreign", [".git", "src", ".env"])
def test_saving_never_replaces_a_project_with_a_model_in_it(foreign: str, policy: LoadedPolicy, tmp_path: Path):
    folder = tmp_path / "project"
    save_policy(policy.model, policy.tokenizer, folder)
    (folder / foreign).mkdir()
    with pytest.raises(CheckpointError, match="other than a policy"):
        save_policy(policy.model, policy.tokenizer, folder)
    assert (folder / foreign).exists()


def test_a_folder_with_any_config_json_is_no_policy(policy: LoadedPolicy, tmp_path: Path):
    (tmp_path / "config.json").write_text('{"name": "site"}')
    with pytest.raises(CheckpointError, match="other than a policy"):
        save_policy(policy.model, policy.tokenizer, tmp_path)


def test_the_current_folder_is_refused(monkeypatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), tmp_path):
        with pytest.raises(ConfigError, match="current folder"):
            make_place(folder)


@pytest.mark.parametrize("tied", [True, False])
def test_swap_makes_one_model_the_other(tied: bool, policy: LoadedPolicy, tmp_path: Path):
    config = LlamaConfig(
        vocab_size=len(policy.tokenizer),
        tie_word_embeddings=tied,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    served, trained = LlamaForCausalLM(config).eval(), LlamaForCausalLM(config).eval()
    save_policy(trained, policy.tokenizer, tmp_path / "llama")
    assert not torch.equal(logits(served), logits(trained))
    swap_weights(served, read_weights(tmp_path / "llama"))
    assert torch.equal(logits(served), logits(trained))
    assert torch.equal(logits(load_policy(tmp_path / "llama").model), logits(trained))


def test_swap_refuses_other_weights_and_changes_nothing(policy: LoadedPolicy):
    before = logits(policy.model)
    weights = {name: torch.zeros_like(tensor) for name, tensor in policy.model.state_dict().items()}
    weights["model.norm.weight"] = torch.zeros(7)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is of shape \(7,\)"):
        swap_weights(policy.model, weights)
    assert torch.equal(logits(policy.model), before)


def test_missing_folder(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no policy at .*nowhere"):
        load_policy(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(name: str, copied: Path):
    (copied / name).unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer" if name == "tokenizer.json" else name.split(".")[0]):
        load_policy(copied)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_torn_file_is_a_checkpoint_error(name: str, copied: Path):
    content = (copied / name).read_bytes()
    (copied / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=str(copied)):
        load_policy(copied)


def test_read_weights_names_the_damaged_file(copied: Path):
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
        read_weights(copied)


def test_an_absent_tensor_is_never_filled_with_random_numbers(copied: Path):
    weights = load_file(copied / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    (copied / CHECKSUMS).unlink()
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight"):
        load_policy(copied)


def test_weights_of_another_shape_are_refused(copied: Path):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))
    with pytest.raises(CheckpointError):
        load_policy(copied)


def test_a_pickle_is_never_opened(copied: Path):
    (copied / "model.safetensors").unlink()
    (copied / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(CheckpointError, match="pickle"):
        load_policy(copied)


def test_the_seed_decides_the_weights_and_nothing_else():
    torch.manual_seed(3)
    first = make_model(300, hidden_size=32, num_layers=1, seed=5).state_dict()
    drawn = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), drawn)
    again = make_model(300, hidden_size=32, num_layers=1, seed=5).state_dict()
    other = make_model(300, hidden_size=32, num_layers=1, seed=6).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_default_size_is_about_a_million():
    assert 1.0e6 < sum(parameter.numel() for parameter in make_model(2048).parameters()) < 1.2e6


def test_a_file_that_does_not_fit_is_an_os_error(policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The weights, the tokenizer or the canary; the policy that was saved before stays whole."""
    target = tmp_path / "policy"
    save_policy(policy.model, policy.tokenizer, target)
    with max_file_size(5000):
        weights = os_error(lambda: save_policy(policy.model, policy.tokenizer, target))
        canary = os_error(lambda: write_canary(target, policy.model, [[1, 2, 3, 4] * 120]))
        monkeypatch.setattr(policy.model, "save_pretrained", policy.model.config.save_pretrained)
        tokenizer = os_error(lambda: save_policy(policy.model, policy.tokenizer, target))
    assert weights == tokenizer == (errno.EFBIG, f"{target}.writing")
    assert canary == (errno.EFBIG, str(target / "canary.tensors"))
    load_policy(target)


def os_error(write: Callable[[], object]) -> tuple[int | None, str]:
    """Return number and file of the error that a write raises."""
    with pytest.raises(OSError) as refused:
        write()
    return refused.value.errno, str(refused.value.filename)


def test_threads_that_load_at_once_leave_each_other_whole(tmp_path: Path):
    """`transformers` patches its classes meanwhile: tied weights of later loads would be missing."""
    make_model(64, hidden_size=16, num_layers=1, num_heads=1).save_pretrained(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(load_model, [tmp_path] * 24):
            pass
    assert load_model(tmp_path).config.tie_word_embeddings
