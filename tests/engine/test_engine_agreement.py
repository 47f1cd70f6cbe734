"""What serves is what the canary scores: a pass that differs from the model's own never samples a token."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from engine_models import (
    MAX_CONTEXT_TOKENS,
    VOCAB_SIZE,
    make_longrope,
    make_model,
    make_requests,
    reference_logprobs,
)
from transformers import GPT2Config, GPT2LMHeadModel

from quartet.engine.agreement import START_PROBE_TOKENS, disagreement, gap_nats, own_pass
from quartet.engine.cache_forward import CacheForward
from quartet.engine.choose_forward import make_forward
from quartet.engine.dense_forward import DenseForward
from quartet.engine.forward import Span
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import CheckpointError, ConfigError
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.types import Sampling
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


@pytest.mark.parametrize("architecture", ["llama_mlp_biased", "qwen2_sliding"])
def test_unsupported_architectures_use_the_cache_interface(architecture: str) -> None:
    model = make_model(architecture)
    assert isinstance(make_forward(model, 2, 64), CacheForward)


async def test_a_model_that_the_hand_written_pass_gets_wrong_is_served_through_the_cache(
    engine_of: Builder, caplog: pytest.LogCaptureFixture
) -> None:
    model: Any = make_model()
    model.model.layers[0].self_attn.scaling *= 2
    with caplog.at_level(logging.WARNING):
        engine = engine_of(model)
    assert "nats apart" in caplog.text
    for request in make_requests(3):
        result = await engine.generate(request)
        logprobs = reference_logprobs(model, request, result.token_ids)
        drawn = logprobs.gather(-1, torch.tensor(result.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(result.logprobs), drawn, atol=1e-4, rtol=0)


def test_logits_that_are_not_numbers_do_not_agree() -> None:
    model = make_model()
    with torch.no_grad():
        model.get_input_embeddings().weight.fill_(torch.nan)
    with pytest.raises(ConfigError, match="nan nats apart"):
        make_forward(model, 2, 64)


def with_head_bias(seed: int, std: float) -> Any:
    """Qwen3 with something that its architecture does not have; the hand-written pass does not know it."""
    model: Any = make_model(seed=seed)
    model.lm_head.bias = torch.nn.Parameter(std * torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(0)))
    return model


async def test_weights_that_only_the_model_itself_knows_are_refused_whatever_the_canary_says(
    engine_of: Builder, tmp_path: Path
) -> None:
    engine, quiet = (engine_of(with_head_bias(0, 0.0), max_context_tokens=1024) for _ in range(2))
    new = with_head_bias(1, 1.0)
    new.save_pretrained(tmp_path)
    write_canary(tmp_path, new, [fixed_sequence(VOCAB_SIZE, 64)])
    request = msgspec.structs.replace(make_requests(1)[0], sampling=Sampling(temperature=0.0, max_tokens=600))
    running = asyncio.create_task(engine.generate(request))
    await until(lambda: engine.counters.generated_tokens > 3)
    with pytest.raises(CheckpointError, match="nats apart"):
        await engine.load_policy(tmp_path, 1)
    assert await engine.version() == 0
    assert await running == await quiet.generate(request)


@pytest.mark.parametrize("kind", [DenseForward, CacheForward])
def test_rows_keep_what_they_hold(kind: type[DenseForward | CacheForward]) -> None:
    model = make_model()
    forward = kind(model, 3, 64)
    forward.rows.reserve(2, 64)
    forward.rows.keys.normal_()
    forward.rows.values.normal_()
    keys, values = forward.rows.keys.clone(), forward.rows.values.clone()
    assert gap_nats(model, forward, own_pass(model, forward)) < 1e-4
    assert torch.equal(forward.rows.keys, keys) and torch.equal(forward.rows.values, values)


def test_the_probe_at_the_start_sees_a_row_that_depends_on_its_neighbour() -> None:
    """As the code of a policy's folder may compute it, of whose config nothing is known."""
    model = make_longrope(original_tokens=64)
    forward = CacheForward(model, 2, MAX_CONTEXT_TOKENS)
    assert "nats apart" in disagreement(model, forward, own_pass(model, forward, START_PROBE_TOKENS))


def test_rounding_may_move_one_distribution_of_a_model_in_bfloat16_but_not_all() -> None:
    """Half of the tokens are twice as likely on one side, a gap of 0.3 nats."""
    model = make_model().bfloat16()
    forward = CacheForward(model, 2, MAX_CONTEXT_TOKENS)
    own = own_pass(model, forward)
    shift_V = (0.7 * (torch.arange(forward.vocab_size) % 2)).bfloat16()
    one = torch.stack([shift_V, 0 * shift_V])
    first, second = own.logits
    assert disagreement(model, forward, own._replace(logits=[first + one, second])) == ""
    assert "nats apart" in disagreement(model, forward, own._replace(logits=[first + shift_V, second + shift_V]))


class AllLogits(GPT2LMHeadModel):
    """Model code that returns the logits of every position, as a policy folder may bring it."""

    def forward(self, *args: Any, logits_to_keep: int = 0, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("kind", [GPT2LMHeadModel, AllLogits])
def test_rows_of_different_length_need_no_selection_of_positions_by_the_model(kind: type[GPT2LMHeadModel]) -> None:
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    torch.manual_seed(0)
    model = kind(config).eval()
    forward = make_forward(model, 3, 64)
    assert isinstance(forward, CacheForward)
    rows = [[1, 2, 3, 4, 5], [6], [7, 8]]
    with torch.inference_mode():
        expected = [model(input_ids=torch.tensor([ids])).logits[0, -1] for ids in rows]
        torch.testing.assert_close(
            forward.extend([Span(0, ids) for ids in rows]), torch.stack(expected), atol=1e-5, rtol=0
        )
