"""Mixtures of experts: `transformers` fuses the experts' weights, which files store one by one."""

from pathlib import Path

import pytest
import torch
from engine_kinds import engine_recipe
from engine_models import greedy_ids, make_model, make_requests, make_word_tokenizer, without_checksums
from safetensors.torch import load_file, save_file

from quartet.engine.torch_engine import open_torch
from quartet.engine.transformers_engine import open_transformers
from quartet.errors import CheckpointError
from quartet.policy.load import load_policy
from quartet.policy.lora import policy_weights
from quartet.policy.save import save_policy
from quartet.policy.weights import read_weights
from quartet.train.publish import publish_policy
from quartet.types import Policy

OPENERS = {"torch": open_torch, "transformers": open_transformers}
EXPERT = "model.layers.1.mlp.experts.2.up_proj.weight"


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """Publish a mixture of experts as the trainer does, which has loaded it from files."""
    save_policy(make_model("qwen3_moe", seed=1), make_word_tokenizer(), tmp_path / "start")
    trained = load_policy(tmp_path / "start").model
    publish_policy(trained, make_word_tokenizer(), tmp_path / "v1", [])
    return tmp_path / "v1"


def test_files_keep_the_names_of_single_experts_and_are_read_by_those_of_parameters(published: Path) -> None:
    assert EXPERT in load_file(published / "model.safetensors")
    read, trained = read_weights(published), policy_weights(make_model("qwen3_moe", seed=1))
    assert read.keys() == trained.keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in trained.items())


@pytest.mark.parametrize("kind", OPENERS)
async def test_an_embedded_engine_loads_a_trained_mixture(kind: str, published: Path, tmp_path: Path) -> None:
    save_policy(make_model("qwen3_moe", seed=0), make_word_tokenizer(), tmp_path / "v0")
    engine = OPENERS[kind](engine_recipe(kind), Policy(version=0, path=str(tmp_path / "v0"), train_step=0))
    try:
        load = await engine.load_policy(published, 1)
        assert load.canary_gap is not None and load.canary_gap < 1e-3
        request = make_requests(1, temperature=0.0)[0]
        result = await engine.generate(request)
        assert result.token_ids == greedy_ids(make_model("qwen3_moe", seed=1), request)
    finally:
        await engine.close()


def test_a_mixture_without_one_expert_is_refused(published: Path) -> None:
    without_checksums(published)
    file = published / "model.safetensors"
    weights = load_file(file)
    del weights[EXPERT]
    save_file(weights, file)
    with pytest.raises(CheckpointError, match="cannot load the model"):
        read_weights(published)
