"""The engine agrees with `transformers`, whatever else is in its batch, and fails loudly."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
import torch
from engine_models import (
    MAX_CONTEXT_TOKENS,
    VOCAB_SIZE,
    Gate,
    greedy_ids,
    make_model,
    make_requests,
    reference_logprobs,
)

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.torch_engine import TorchEngine
from quartet.errors import EngineError, PromptTooLongError, RefusedRequestError
from quartet.types import FinishReason, Sampling

pytestmark = pytest.mark.slow

Builder = Callable[..., TorchEngine]


async def generate_all(engine: TorchEngine, requests: list[GenerateRequest], stagger: int = 3) -> list[GenerateResult]:
    """Submit in small waves, so that requests join while others run and leave."""
    tasks = []
    for index, request in enumerate(requests):
        tasks.append(asyncio.create_task(engine.generate(request)))
        if index % stagger == 0:
            await asyncio.sleep(0.002)
    return await asyncio.gather(*tasks)


def with_sampling(request: GenerateRequest, **changes: float) -> GenerateRequest:
    return msgspec.structs.replace(request, sampling=msgspec.structs.replace(request.sampling, **changes))


@pytest.mark.parametrize("architecture", ["qwen3", "qwen3_tied_biased", "qwen2", "llama", "llama_biased", "gpt2"])
async def test_greedy_equals_transformers_token_by_token(architecture: str, engine_of: Builder) -> None:
    model = make_model(architecture)
    requests = make_requests(40, temperature=0.0)
    results = await generate_all(engine_of(make_model(architecture), max_slots=6), requests)
    for request, result in zip(requests, results, strict=True):
        assert result.token_ids == greedy_ids(model, request)
        assert result.finish_reason is FinishReason.LENGTH
        assert result.versions == [0] * len(result.token_ids)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (1.3, 0.6)])
async def test_logprobs_equal_a_full_forward(temperature: float, top_p: float, engine_of: Builder) -> None:
    model = make_model()
    requests = make_requests(24, temperature=temperature, top_p=top_p)
    for request, result in zip(requests, await generate_all(engine_of(make_model()), requests), strict=True):
        logprobs = reference_logprobs(model, request, result.token_ids, temperature)
        drawn = logprobs.gather(-1, torch.tensor(result.token_ids)[:, None])[:, 0]
        if top_p < 1:
            probs = logprobs.exp()
            more_likely = probs.masked_fill(probs <= drawn.exp()[:, None], 0).sum(-1)
            assert (more_likely < top_p).all()
            kept_mass = _nucleus_mass(probs, top_p)
            drawn = drawn - kept_mass.log()
        torch.testing.assert_close(torch.tensor(result.logprobs), drawn, atol=1e-4, rtol=0)


def _nucleus_mass(probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Mass of the smallest set that reaches `top_p`, row by row in plain Python."""
    masses = []
    for row in probs.tolist():
        mass = 0.0
        for probability in sorted(row, reverse=True):
            mass += probability
            if mass >= top_p:
                break
        masses.append(mass)
    return torch.tensor(masses)


async def test_a_request_samples_the_same_alone_and_among_fifteen_others(engine_of: Builder) -> None:
    engine = engine_of(make_model(), max_slots=16)
    requests = make_requests(16, temperature=1.0, top_p=0.95)
    together = await generate_all(engine, requests, stagger=100)
    for request, among_others in zip(requests, together, strict=True):
        alone = await engine.generate(request)
        assert alone.token_ids == among_others.token_ids
        assert alone.logprobs == pytest.approx(among_others.logprobs, abs=1e-4)


async def test_a_stop_token_ends_the_response_and_is_part_of_it(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    request = with_sampling(make_requests(1)[0], temperature=0.0, max_tokens=10)
    free = await engine.generate(request)
    stop = free.token_ids[4]
    stopped = await engine.generate(msgspec.structs.replace(request, stop_token_ids=[stop]))
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert stopped.finish_reason is FinishReason.STOP


async def test_the_context_bounds_response_and_prompt(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    almost_full = GenerateRequest(
        request_id="a", prompt_ids=[3] * (MAX_CONTEXT_TOKENS - 2), sampling=Sampling(max_tokens=9), stop_token_ids=[]
    )
    result = await engine.generate(almost_full)
    assert (len(result.token_ids), result.finish_reason) == (2, FinishReason.LENGTH)
    with pytest.raises(PromptTooLongError, match="leaves no room"):
        await engine.generate(msgspec.structs.replace(almost_full, prompt_ids=[3] * MAX_CONTEXT_TOKENS))


@pytest.mark.parametrize("prompt_ids", [[], [1, VOCAB_SIZE], [-1]])
async def test_senseless_prompts_are_refused(prompt_ids: list[int], engine_of: Builder) -> None:
    engine = engine_of(make_model())
    request = GenerateRequest(request_id="a", prompt_ids=prompt_ids, sampling=Sampling(), stop_token_ids=[])
    with pytest.raises(RefusedRequestError):
        await engine.generate(request)


async def test_a_request_id_in_flight_is_refused_and_free_again_afterwards(engine_of: Builder) -> None:
    engine, request = engine_of(make_model()), make_requests(1)[0]
    first = asyncio.create_task(engine.generate(request))
    await asyncio.sleep(0)
    with pytest.raises(RefusedRequestError, match="in flight"):
        await engine.generate(request)
    assert (await first).token_ids == (await engine.generate(request)).token_ids


async def test_logits_that_are_not_finite_fail_their_request_alone(engine_of: Builder) -> None:
    poisoned, healthy = make_model(), make_model()
    requests = make_requests(12, temperature=0.0)
    requests = [msgspec.structs.replace(r, prompt_ids=[t for t in r.prompt_ids if t != 7] or [1]) for r in requests]
    bad = {index: msgspec.structs.replace(requests[index], prompt_ids=[5, 7, 9]) for index in (0, 4, 5)}
    submitted = [bad.get(index, request) for index, request in enumerate(requests)]
    engine = engine_of(poisoned, max_slots=3)
    with torch.no_grad():  # after its start, which proves the weights
        poisoned.get_input_embeddings().weight[7] = torch.nan
    outcomes = await asyncio.gather(*map(engine.generate, submitted), return_exceptions=True)
    references = await asyncio.gather(*map(engine_of(healthy).generate, requests))
    for index, outcome in enumerate(outcomes):
        if index in bad:
            assert isinstance(outcome, EngineError) and "NaN" in str(outcome)
        elif 7 not in references[index].token_ids:
            assert isinstance(outcome, GenerateResult) and outcome.token_ids == references[index].token_ids


async def test_nothing_of_a_failed_request_leaks_into_the_next_one_of_its_slot(engine_of: Builder) -> None:
    poisoned = make_model()
    engine = engine_of(poisoned, max_slots=3)
    with torch.no_grad():  # after its start, which proves the weights
        poisoned.get_input_embeddings().weight[7] = torch.nan
    short = [msgspec.structs.replace(r, prompt_ids=[3, 4]) for r in make_requests(3, temperature=0.0)]
    bad = [msgspec.structs.replace(r, prompt_ids=[7] * 40, request_id=f"bad{r.request_id}") for r in short]
    outcomes = await asyncio.gather(*map(engine.generate, [*bad, *short]), return_exceptions=True)
    assert all(isinstance(outcome, EngineError) for outcome in outcomes[:3])
    expected = await asyncio.gather(*map(engine_of(make_model()).generate, short))
    assert [o.token_ids for o in outcomes[3:] if isinstance(o, GenerateResult)] == [e.token_ids for e in expected]


async def test_abort_returns_the_tokens_sampled_so_far(engine_of: Builder) -> None:
    engine = engine_of(make_model(), max_slots=1)
    long = Sampling(max_tokens=MAX_CONTEXT_TOKENS)
    running = GenerateRequest(request_id="running", prompt_ids=[1], sampling=long, stop_token_ids=[])
    waiting = msgspec.structs.replace(running, request_id="waiting")
    gate = Gate(engine, tokens=3)
    tasks = [asyncio.create_task(engine.generate(request)) for request in (running, waiting)]
    await gate.reached()
    for request_id in ("waiting", "running", "unknown"):
        await engine.abort(request_id)
    await gate.open()
    partial, nothing = await asyncio.gather(*tasks)
    assert partial.finish_reason is nothing.finish_reason is FinishReason.ABORT
    count = len(partial.token_ids)
    assert 3 < count < MAX_CONTEXT_TOKENS - 1
    assert count == len(partial.logprobs) == len(partial.entropies) == len(partial.versions)
    assert nothing.token_ids == nothing.logprobs == nothing.entropies == nothing.versions == []
    assert partial.token_ids == (await engine.generate(running)).token_ids[:count]


async def test_a_cancelled_waiter_frees_its_slot(engine_of: Builder) -> None:
    engine = engine_of(make_model(), max_slots=1)
    sampling = Sampling(max_tokens=MAX_CONTEXT_TOKENS)
    request = GenerateRequest(request_id="a", prompt_ids=[1], sampling=sampling, stop_token_ids=[])
    gate = Gate(engine, tokens=1)
    task = asyncio.create_task(engine.generate(request))
    await gate.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gate.open()
    after = await engine.generate(with_sampling(request, max_tokens=2))
    assert len(after.token_ids) == 2
    assert engine.counters.generated_tokens < MAX_CONTEXT_TOKENS


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_failing_step_fails_every_request_and_the_health_check(engine_of: Builder) -> None:
    model = make_model("gpt2")  # the engine calls its modules; those of the others it only reads

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    engine = engine_of(model)
    model.register_forward_pre_hook(fail)
    outcomes = await asyncio.gather(*map(engine.generate, make_requests(3)), return_exceptions=True)
    assert all(isinstance(outcome, EngineError) and "out of memory" in str(outcome) for outcome in outcomes)
    with pytest.raises(EngineError, match="out of memory"):
        await engine.version()


async def test_close_fails_requests_in_flight(engine_of: Builder) -> None:
    engine = engine_of(make_model())
    sampling = Sampling(max_tokens=MAX_CONTEXT_TOKENS)
    request = GenerateRequest(request_id="a", prompt_ids=[1], sampling=sampling, stop_token_ids=[])
    gate = Gate(engine, tokens=1)
    task = asyncio.create_task(engine.generate(request))
    await gate.reached()
    closing = asyncio.create_task(engine.close())
    await gate.open(commands=1)
    await closing
    with pytest.raises(EngineError, match="stopped"):
        await task
    with pytest.raises(EngineError, match="closed"):
        await engine.generate(request)
