"""What was computed once is not computed again, and changes nothing: conversations, groups, chunks, new weights."""

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
import torch
from engine_models import VOCAB_SIZE, make_model, make_requests, reference_logprobs
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from quartet.engine import dense_forward
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.cache_forward import CacheForward
from quartet.engine.choose_forward import make_forward
from quartet.engine.dense_forward import DenseForward
from quartet.engine.forward import Span
from quartet.engine.prefix_cache import MIN_TOKENS, PrefixCache
from quartet.engine.rows import Rows
from quartet.engine.scheduler import MAX_PREFILL_TOKENS
from quartet.engine.token_kernel import TokenKernel
from quartet.engine.torch_engine import TorchEngine
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.types import Sampling
from tests.waiting import until

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]
ARCHITECTURES = pytest.mark.parametrize("architecture", ["qwen3", "llama", "gpt2"])


def request(name: str, prompt_ids: list[int], max_tokens: int = 8) -> GenerateRequest:
    sampling = Sampling(max_tokens=max_tokens, seed=sum(prompt_ids))
    return GenerateRequest(request_id=name, prompt_ids=prompt_ids, sampling=sampling, stop_token_ids=[])


def assert_faithful(architecture: str, asked: GenerateRequest, result: GenerateResult, seed: int = 0) -> None:
    """Every log-prob is that of one full forward pass."""
    logprobs = reference_logprobs(make_model(architecture, seed), asked, result.token_ids)
    drawn = logprobs.gather(-1, torch.tensor(result.token_ids)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(result.logprobs), drawn, atol=1e-4, rtol=0)


def test_known_architectures_are_run_by_hand() -> None:
    for name in ("qwen3", "qwen3_tied_biased", "qwen2", "llama", "llama_biased"):
        assert isinstance(make_forward(make_model(name), 2, 64), DenseForward)
    assert isinstance(make_forward(make_model("gpt2"), 2, 64), CacheForward)


@cache
def exact_and_cast(architecture: str, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedModel]:
    """Return the model in float32 and in `dtype`, made once; tests only read them."""
    return make_model(architecture), make_model(architecture).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "architecture",
    [
        "qwen3_tied_biased",
        "qwen2_wide",
        "llama_biased",
        *(pytest.param(name, marks=pytest.mark.campaign) for name in ("qwen3", "qwen2", "llama_wide")),
    ],
)
@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_spans_of_any_shape_grow_their_rows_alike_in_both_passes(
    architecture: str, dtype: torch.dtype, data: st.DataObject
) -> None:
    """The hand-written pass with and without the compiled kernels, and the one through the cache interface, equal one
    pass over the whole sequence."""
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    sequences = [fixed_sequence(VOCAB_SIZE, length + 3 * row)[3 * row :] for row, length in enumerate(lengths)]
    cuts = [sorted(data.draw(st.sets(st.integers(1, length), max_size=3)) | {length}) for length in lengths]
    exact, model = exact_and_cast(architecture, dtype)
    atol, rtol = (1e-3, 1e-3) if dtype == torch.float32 else (0.3, 0.0)
    with_kernels = DenseForward(model, 5, 64)
    assert isinstance(with_kernels.ops, TokenKernel) == ("wide" in architecture or "tied" in architecture)
    with patch.object(dense_forward, "kernel_library", lambda *_: None):
        without_kernels = DenseForward(model, 5, 64)
    with torch.inference_mode():
        expected = [exact(input_ids=torch.tensor([ids])).logits[0] for ids in sequences]
        for forward in (with_kernels, without_kernels, CacheForward(model, 5, 64)):
            held = [0] * len(lengths)
            for step in range(max(map(len, cuts))):
                ends = [row[min(step, len(row) - 1)] for row in cuts]
                starts = [min(start, end - 1) for start, end in zip(held, ends, strict=True)]
                parts = zip(sequences, starts, ends, strict=True)
                logits = forward.extend([Span(start, ids[start:end]) for ids, start, end in parts])
                for row, end in enumerate(ends):
                    torch.testing.assert_close(logits[row].float(), expected[row][end - 1], atol=atol, rtol=rtol)
                held = ends


@ARCHITECTURES
async def test_a_conversation_computes_only_its_new_tokens(architecture: str, engine_of: Builder) -> None:
    engine = engine_of(make_model(architecture))
    history = fixed_sequence(VOCAB_SIZE, 50)
    for turn in range(4):
        asked = request(str(turn), history)
        before = msgspec.structs.replace(engine.counters)
        result = await engine.generate(asked)
        assert_faithful(architecture, asked, result)
        computed = engine.counters.prompt_tokens - before.prompt_tokens
        computed -= engine.counters.reused_tokens - before.reused_tokens
        # The token sampled last was never fed to the model.
        assert computed == (50 if turn == 0 else 1 + 12)
        history = [*history, *result.token_ids, *fixed_sequence(VOCAB_SIZE, 12 + turn)[turn:]]


@ARCHITECTURES
async def test_a_group_computes_its_prompt_once(architecture: str, engine_of: Builder) -> None:
    engine = engine_of(make_model(architecture))
    prompt_ids = fixed_sequence(VOCAB_SIZE, 80)
    sampled = [msgspec.structs.replace(request(str(i), prompt_ids), sampling=Sampling(seed=i)) for i in range(8)]
    results = await asyncio.gather(*map(engine.generate, sampled))
    assert engine.counters.prompt_tokens - engine.counters.reused_tokens == 80 + 7
    assert len({tuple(result.token_ids) for result in results}) == 8
    for asked, result in zip(sampled, results, strict=True):
        assert_faithful(architecture, asked, result)


async def test_a_group_whose_prompt_ends_just_after_a_chunk_computes_it_once(engine_of: Builder) -> None:
    engine = engine_of(make_model(), max_context_tokens=1024)
    prompt_ids = fixed_sequence(VOCAB_SIZE, MAX_PREFILL_TOKENS + 8)
    sampled = [msgspec.structs.replace(request(str(i), prompt_ids), sampling=Sampling(seed=i)) for i in range(4)]
    await asyncio.gather(*map(engine.generate, sampled))
    assert engine.counters.prompt_tokens - engine.counters.reused_tokens == len(prompt_ids) + 3


async def test_prompts_longer_than_a_step_go_in_chunks(engine_of: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quartet.engine.scheduler.MAX_PREFILL_TOKENS", 16)
    engine = engine_of(make_model(), max_slots=3)
    asked = [request(f"{i}", fixed_sequence(VOCAB_SIZE, 30 + 17 * i)[i:], 5 + i) for i in range(7)]
    for one, result in zip(asked, await asyncio.gather(*map(engine.generate, asked)), strict=True):
        assert_faithful("qwen3", one, result)


@pytest.mark.parametrize("kv_cache_on_weight_update", ["recompute", "keep"])
async def test_new_weights_forget_what_the_old_ones_computed(
    kv_cache_on_weight_update: str, engine_of: Builder, tmp_path: Path
) -> None:
    engine, new = (
        engine_of(make_model(seed=0), max_context_tokens=4096, kv_cache_on_weight_update=kv_cache_on_weight_update),
        make_model(seed=1),
    )
    new.save_pretrained(tmp_path)
    write_canary(tmp_path, new, [fixed_sequence(VOCAB_SIZE, 64)])
    prompt_ids = fixed_sequence(VOCAB_SIZE, 50)
    await engine.generate(request("before", prompt_ids))
    long = msgspec.structs.replace(request("mixed", prompt_ids), sampling=Sampling(max_tokens=4000))
    mixed = asyncio.create_task(engine.generate(long))
    await until(lambda: engine.counters.generated_tokens > 20)
    await engine.load_policy(tmp_path, 1)
    loaded = engine.counters.generated_tokens
    await until(lambda: engine.counters.generated_tokens > loaded)
    await engine.abort("mixed")
    partial = await mixed
    assert set(partial.versions) == {0, 1}
    for asked in (request("after", prompt_ids), request("goes on", [*prompt_ids, *partial.token_ids])):
        assert_faithful("qwen3", asked, await engine.generate(asked), seed=1)


@pytest.mark.parametrize("kv_cache_on_weight_update", ["recompute", "keep"])
async def test_a_roll_back_does_not_revive_what_was_computed_in_between(
    kv_cache_on_weight_update: str, engine_of: Builder, tmp_path: Path
) -> None:
    engine = engine_of(make_model(seed=0), max_context_tokens=4096, kv_cache_on_weight_update=kv_cache_on_weight_update)
    for seed in (0, 1):
        make_model(seed=seed).save_pretrained(tmp_path / str(seed))
    prompt_ids = fixed_sequence(VOCAB_SIZE, 50)
    long = msgspec.structs.replace(request("mixed", prompt_ids), sampling=Sampling(max_tokens=4000))
    mixed = asyncio.create_task(engine.generate(long))
    for version in (1, 0):
        sampled = engine.counters.generated_tokens
        await until(lambda sampled=sampled: engine.counters.generated_tokens > sampled + 20)
        await engine.load_policy(tmp_path / str(version), version)
    await engine.abort("mixed")
    partial = await mixed
    assert set(partial.versions) <= {0}, "it began again"
    asked = request("goes on", [*prompt_ids, *partial.token_ids])
    assert_faithful("qwen3", asked, await engine.generate(asked))


async def test_no_memory_keeps_nothing(engine_of: Builder) -> None:
    none = engine_of(make_model(), prefix_cache_megabytes=0)
    for _ in range(2):
        await none.generate(request("a", fixed_sequence(VOCAB_SIZE, 50)))
    assert none.counters.reused_tokens == 0


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=60), max_size=30), st.integers(1, 40))
@example([[0] * 16, [0] * 17, [1] * 16, [1] * 24], 40)
def test_the_tree_gives_back_what_was_kept_within_its_memory(sequences: list[list[int]], room_tokens: int) -> None:
    """A row stands for its tokens: position i holds a number made of the tokens up to i."""
    states = torch.zeros(1, 1, 1, 1)
    rows = Rows([(states, states)], rows=2, max_context_tokens=64)
    rows.reserve(2, 64)
    cache = PrefixCache(rows, max_bytes=room_tokens * 8)

    def mark(token_ids: list[int]) -> torch.Tensor:
        return torch.tensor([hash(tuple(token_ids[: i + 1])) % 2**20 for i in range(len(token_ids))]).float()

    for token_ids in sequences:
        rows.clear(1)
        found = cache.copy_into(1, token_ids)
        assert found == 0 or MIN_TOKENS <= found <= len(token_ids)
        assert torch.equal(rows.keys[0, 1, 0, :found, 0], mark(token_ids)[:found])
        rows.keys[0, 0, 0, : len(token_ids), 0] = mark(token_ids)
        cache.keep(0, token_ids)
        assert cache.num_bytes <= cache.max_bytes
        if MIN_TOKENS <= len(token_ids) <= 0.9 * room_tokens:
            assert cache.copy_into(1, token_ids) == len(token_ids)


async def test_many_requests_in_few_slots_are_all_faithful(engine_of: Builder) -> None:
    engine = engine_of(make_model(), max_slots=4)
    asked = make_requests(60, max_prompt=100)
    for one, result in zip(asked, await asyncio.gather(*map(engine.generate, asked)), strict=True):
        assert_faithful("qwen3", one, result)
