"""A hang of the engine is noticed where its other threads still answer: the process ends, and so does whoever waits.

Nothing here heals what hangs: the threads stay behind, as they would in the process that ends.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from engine_models import make_model, make_requests, make_word_tokenizer, publish, until_healthy

from quartet import config
from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine import torch_engine, transformers_engine
from quartet.engine.dense_forward import DenseForward
from quartet.engine.http import HttpEngine
from quartet.engine.server import run_engine
from quartet.engine.torch_engine import TorchEngine
from quartet.engine.transformers_engine import TransformersEngine
from quartet.errors import EngineError
from quartet.ledger import Ledger
from quartet.policy.load import LoadedPolicy
from quartet.recipe.file import parse_recipe
from tests.waiting import until

Builder = Callable[..., TorchEngine]


def tiny_recipe(**engine: object) -> Recipe:
    data = {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": engine}
    return parse_recipe(data, "test")


def for_ever(*_: object) -> None:
    Event().wait()


async def says_that_its_step_hangs(engine: TorchEngine | TransformersEngine) -> None:
    """Ask an engine for a response, and for its version until it says so."""
    generating = asyncio.create_task(engine.generate(make_requests(1)[0]))
    with pytest.raises(EngineError, match="step_timeout_seconds"):
        async with asyncio.timeout(30):
            while await engine.version() == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    generating.cancel()


@pytest.mark.slow
async def test_an_engine_whose_step_hangs_says_so_when_it_is_asked_for_its_version(
    engine_of: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(make_model(), step_timeout_seconds=0.2)
    monkeypatch.setattr(DenseForward, "extend", for_ever)
    await says_that_its_step_hangs(engine)


async def test_an_engine_of_transformers_whose_forward_pass_hangs_is_not_healthy_and_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = config.Engine.model_validate({"name": "transformers", "step_timeout_seconds": 0.2})
    engine = TransformersEngine(LoadedPolicy(make_model(), make_word_tokenizer()), 0, settings)
    gone_on = Event()
    monkeypatch.setattr(transformers_engine, "forward_arguments", lambda *_: gone_on.wait() and {})
    await says_that_its_step_hangs(engine)
    try:
        async with asyncio.timeout(30):
            await engine.close()
        assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("engine"))
    finally:
        gone_on.set()


async def test_new_weights_do_not_wait_for_a_step_that_hangs(
    engine_of: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = publish(make_model(seed=1), tmp_path / "p1")
    engine = engine_of(make_model(), step_timeout_seconds=0.2)
    monkeypatch.setattr(DenseForward, "extend", for_ever)
    with pytest.raises(EngineError, match="step_timeout_seconds"):
        async with asyncio.timeout(30):
            await engine.load_policy(folder, 1)


async def test_new_weights_that_cannot_be_read_end_the_wait(
    engine_of: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_engine, "prove_weights", for_ever)
    engine = engine_of(make_model(), load_timeout_seconds=0.2)
    with pytest.raises(EngineError, match="load_timeout_seconds"):
        async with asyncio.timeout(30):
            await engine.load_policy(tmp_path, 1)
    assert await engine.version() == 0


async def test_an_engine_that_only_waits_for_requests_does_not_hang(engine_of: Builder) -> None:
    engine = engine_of(make_model(), step_timeout_seconds=0.01)
    await engine.generate(make_requests(1)[0])
    await until_healthy(engine)  # its last step may have taken longer
    await asyncio.sleep(0.05)
    assert await engine.version() == 0


async def test_a_process_whose_policy_cannot_be_read_stops_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_on = Event()
    monkeypatch.setattr(torch_engine, "open_torch", lambda *_: (Event().wait(20), gone_on.set()))
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("nowhere")
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(), tmp_path, stop))
    await until(lambda: any(row.module == "engine" for row in ledger.modules.all()))
    stop.set()
    await process
    assert not gone_on.is_set(), "it did not wait for the policy"
    ledger.close()


async def test_the_process_of_an_engine_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(str(publish(make_model(), tmp_path / "p0")))
    process = asyncio.create_task(run_engine(tiny_recipe(step_timeout_seconds=1.0), tmp_path, asyncio.Event()))
    client = HttpEngine(
        lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir), silence_seconds=5, deadline_seconds=5
    )
    assert await client.version() == 0
    monkeypatch.setattr(DenseForward, "extend", for_ever)
    generating = asyncio.create_task(client.generate(make_requests(1)[0]))
    with pytest.raises(EngineError, match="step_timeout_seconds"):
        await asyncio.wait_for(process, 60)
    generating.cancel()
    await asyncio.gather(generating, return_exceptions=True)
    await client.close()
    ledger.close()
