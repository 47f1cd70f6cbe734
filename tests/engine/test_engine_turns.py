"""The engine of `transformers` serves one request at a time; others wait for their turn without holding up anything."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from threading import Event

import pytest
from engine_models import make_model, make_requests, make_word_tokenizer, publish

from quartet.config import Engine
from quartet.engine import transformers_engine
from quartet.engine.transformers_engine import TransformersEngine
from quartet.policy.load import LoadedPolicy
from quartet.types import FinishReason


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Event that the forward passes wait for."""
    opened = Event()
    monkeypatch.setattr(transformers_engine, "forward_arguments", lambda *_: opened.wait() and {})
    return opened


@pytest.fixture
async def engine(gate: Event) -> AsyncIterator[TransformersEngine]:
    served = TransformersEngine(LoadedPolicy(make_model(), make_word_tokenizer()), 0, Engine(name="transformers"))
    yield served
    gate.set()
    await served.close()


async def generating(engine: TransformersEngine, count: int) -> list[asyncio.Task]:
    """Return tasks of `count` requests, of which the first is being computed."""
    tasks = [asyncio.create_task(engine.generate(request)) for request in make_requests(count)]
    await asyncio.sleep(0.1)
    assert engine.active_requests == count
    return tasks


async def test_new_weights_wait_for_the_running_response_alone(
    engine: TransformersEngine, gate: Event, tmp_path: Path
) -> None:
    tasks = await generating(engine, 4)
    loading = asyncio.create_task(engine.load_policy(publish(make_model(seed=1), tmp_path / "p1"), 1))
    await asyncio.sleep(1)  # until the weights are read; the running response holds them up
    assert not loading.done()
    gate.set()
    first, *others = await asyncio.gather(*tasks)
    assert (await loading).version == 1
    assert set(first.versions) == {0}
    assert set(others[-1].versions) == {1}


async def test_an_aborted_request_does_not_wait_for_its_turn(engine: TransformersEngine, gate: Event) -> None:
    running, waiting, last = await generating(engine, 3)
    await engine.abort(make_requests(2)[1].request_id)
    async with asyncio.timeout(30):
        result = await waiting
    assert (result.finish_reason, result.token_ids) == (FinishReason.ABORT, [])
    assert not running.done()
    gate.set()
    assert (await running).token_ids and (await last).token_ids


async def test_a_caller_that_leaves_gives_its_turn_to_the_next(engine: TransformersEngine, gate: Event) -> None:
    running, leaving, last = await generating(engine, 3)
    leaving.cancel()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    gate.set()
    assert (await last).token_ids


async def test_requests_that_wait_end_without_tokens_when_the_engine_is_closed(
    engine: TransformersEngine, gate: Event
) -> None:
    tasks = await generating(engine, 3)
    closing = asyncio.create_task(engine.close())
    async with asyncio.timeout(30):
        ended = await asyncio.gather(*tasks[1:])
    assert [(one.finish_reason, one.token_ids) for one in ended] == [(FinishReason.ABORT, [])] * 2
    gate.set()
    await asyncio.gather(closing, *tasks)
