"""The embedded engines serve a base with an adapter per version; the base is read once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from engine_kinds import engine_recipe
from engine_models import VOCAB_SIZE, greedy_ids, make_model, make_requests, make_word_tokenizer, publish
from transformers import PreTrainedModel

from quartet.config import Lora
from quartet.engine.torch_engine import TorchEngine
from quartet.engine.transformers_engine import TransformersEngine
from quartet.files.whole_folder import whole_folder
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import LoadedPolicy
from quartet.policy.lora import add_adapter, merged_copy
from quartet.policy.save import write_policy

pytestmark = pytest.mark.slow


def publish_adapter(base: Path, folder: Path, seed: int) -> PreTrainedModel:
    """Publish an adapter of `make_model()` that changes its distribution; return the merged model."""
    model = make_model()
    add_adapter(model, Lora(rank=4), str(base), seed)
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if ".lora_B." in name:
            torch.nn.init.normal_(parameter, std=0.02)
    with whole_folder(folder, point="policy") as fresh:
        write_policy(model, make_word_tokenizer(), fresh)
        write_canary(fresh, model, [fixed_sequence(VOCAB_SIZE, 64)])
    return merged_copy(model)


@pytest.mark.parametrize("kind", ["torch", "transformers"])
async def test_each_version_is_served_with_its_adapter_and_the_base_is_read_once(
    kind: str, engine_of: Callable[..., TorchEngine], tmp_path: Path
) -> None:
    base = publish(make_model(), tmp_path / "base")
    if kind == "torch":
        engine = engine_of(make_model(), prefix_cache_megabytes=16)
    else:
        policy = LoadedPolicy(make_model(), make_word_tokenizer())
        engine = TransformersEngine(policy, 0, engine_recipe("transformers").engine)
    request = make_requests(1, temperature=0.0, max_response=12)[0]
    answers = []
    for version in (1, 2, 3):
        model = publish_adapter(base, tmp_path / f"v{version}", seed=version)
        load = await engine.load_policy(tmp_path / f"v{version}", version)
        assert load.canary_gap is not None and load.canary_gap < 1e-4
        result = await engine.generate(request)
        assert result.token_ids == greedy_ids(model, request)
        assert set(result.versions) == {version}
        answers.append(tuple(result.token_ids))
        shutil.rmtree(base, ignore_errors=True)
    assert len(set(answers)) > 1, "the adapters differ"
    await engine.close()
