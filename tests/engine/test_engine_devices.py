"""The embedded engine on each device: the same answers, new weights, and no tensor on the default device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from engine_kinds import engine_recipe
from engine_models import MAX_CONTEXT_TOKENS, greedy_ids, make_model, make_requests, publish

from quartet.engine.choose_forward import make_forward
from quartet.engine.forward import Span
from quartet.engine.sampling import sample
from quartet.engine.torch_engine import open_torch
from quartet.engine.transformers_engine import open_transformers
from quartet.errors import ConfigError, SetupError
from quartet.types import Policy, Sampling
from tests.devices import DEVICES

pytestmark = pytest.mark.slow
OPENERS = {"torch": open_torch, "transformers": open_transformers}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", OPENERS)
async def test_answers_are_those_of_transformers_before_and_after_new_weights(
    kind: str, device: str, tmp_path: Path
) -> None:
    first = Policy(version=0, path=str(publish(make_model(), tmp_path / "v0")), train_step=0)
    engine = OPENERS[kind](engine_recipe(kind, device=device), first)
    try:
        assert engine.device.type == device
        for version in (0, 1):
            model = make_model(seed=version)
            if version:
                load = await engine.load_policy(publish(model, tmp_path / "v1"), 1)
                assert load.canary_gap is not None and load.canary_gap < 1e-3
            for request in make_requests(4, seed=version, temperature=0.0):
                assert (await engine.generate(request)).token_ids == greedy_ids(model, request)
                assert len((await engine.generate(request)).token_ids)  # from the prefix cache
    finally:
        await engine.close()


@pytest.mark.parametrize("kind", OPENERS)
async def test_an_engine_in_bfloat16_has_exact_frequencies_of_positions(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` gets the model that is served."""
    served: list[Any] = []
    monkeypatch.setattr(f"quartet.engine.{kind}_engine.verify", lambda model, _: served.append(model))
    first = Policy(version=0, path=str(publish(make_model(), tmp_path / "v0")), train_step=0)
    engine = OPENERS[kind](engine_recipe(kind, dtype="bfloat16"), first)
    await engine.close()
    (model,) = served
    assert model.dtype == torch.bfloat16
    assert torch.equal(model.model.rotary_emb.inv_freq, make_model().model.rotary_emb.inv_freq)


@pytest.mark.parametrize("architecture", ["qwen3", "gpt2"])
@torch.inference_mode()
def test_no_tensor_of_a_decode_step_is_on_the_default_device(architecture: str) -> None:
    """Tensors that are made without a device are on `meta`, where computing with one on the CPU raises an error."""
    forward = make_forward(make_model(architecture), 4, MAX_CONTEXT_TOKENS)
    samplings = [Sampling(seed=1), Sampling(seed=2, temperature=0.5, top_k=5, top_p=0.9), Sampling(temperature=0.0)]
    drawn = []
    for default in ("cpu", "meta"):
        with torch.device(default):
            logits = forward.extend([Span(0, [1, 2, 3]), Span(0, [4]), Span(0, [5, 6])])
            logits = forward.extend([Span(3, [7]), Span(1, [7]), Span(2, [7, 8])])
            drawn.append(sample(logits, samplings, [4, 2, 4], {0: [3]}))
    assert drawn[0] == drawn[1]


def test_a_missing_device_is_named(tmp_path: Path) -> None:
    missing = f"cuda:{torch.cuda.device_count()}"
    policy = Policy(version=0, path=str(tmp_path), train_step=0)
    for kind, opener in OPENERS.items():
        with pytest.raises(SetupError, match=f"engine.device = '{missing}', but torch"):
            opener(engine_recipe(kind, device=missing), policy)


def test_a_server_has_no_device_of_ours() -> None:
    with pytest.raises(ConfigError, match=r"engine.device has no effect on the engine 'openai'"):
        engine_recipe("openai", url="http://x", device="cuda")
