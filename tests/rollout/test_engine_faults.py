"""What an engine does wrong is a recorded status and another attempt: never a reward, never half a response.

The engine, its HTTP API, the worker and the ledger are real. What a real engine cannot be made to do is done to its
first answer on the way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
import torch
from aiohttp import web
from worker_bench import TOKENIZER, Bench

from quartet.config import Engine
from quartet.engine.api import make_app
from quartet.engine.http import HttpEngine
from quartet.engine.torch_engine import TorchEngine
from quartet.ledger.schema import rollouts
from quartet.policy.model import make_model
from quartet.report.totals import run_totals, status_counts
from quartet.types import Trajectory
from tests.rollout.serving import serving
from tests.waiting import until

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 4.0
Body = dict[str, Any]


async def too_few_logprobs(choice: Body) -> None:
    choice["logprobs"]["token_logprobs"].pop()


async def logprobs_that_are_nan(choice: Body) -> None:
    choice["logprobs"]["token_logprobs"][0] = None  # how JSON carries NaN


async def ids_out_of_the_vocabulary(choice: Body) -> None:
    choice["token_ids"][-1] = len(TOKENIZER)


async def more_tokens_than_asked_for(choice: Body) -> None:
    choice["token_ids"] *= 40
    choice["logprobs"]["token_logprobs"] *= 40
    choice |= {"entropies": [], "weight_versions": [{"version": 0, "start": 0, "end": len(choice["token_ids"])}]}


async def versions_that_go_backwards(choice: Body) -> None:
    end = len(choice["token_ids"])
    choice["weight_versions"] = [{"version": 1, "start": 0, "end": 1}, {"version": 0, "start": 1, "end": end}]


async def no_answer(choice: Body) -> None:
    await asyncio.Event().wait()


async def no_choice(choice: Body) -> None:
    choice.clear()


SPOILED = [
    (too_few_logprobs, "columns of different lengths"),
    (logprobs_that_are_nan, "sent an invalid response"),
    (ids_out_of_the_vocabulary, "vocabulary"),
    (more_tokens_than_asked_for, "instead of 1 to"),
    (versions_that_go_backwards, "go backwards"),
    (no_answer, "sent no data for"),
    (no_choice, "sent an invalid response"),
]


def spoiling(spoil: Callable[[Body], Any]) -> Any:
    """A middleware that does `spoil` to the first answer to a generation."""
    spoiled = False

    @web.middleware
    async def middleware(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        nonlocal spoiled
        response = await handler(request)
        if request.path != "/v1/completions" or spoiled:
            return response
        spoiled = True
        answer = msgspec.json.decode(response.body)
        await spoil(answer["choices"][0])
        return web.json_response(answer)

    return middleware


def make_engine(*, vocab_size: int = len(TOKENIZER), max_context_tokens: int = 512, **settings: Any) -> TorchEngine:
    model = make_model(vocab_size, hidden_size=32, num_layers=2, num_heads=2, seed=0)
    return TorchEngine(model, 0, Engine(max_slots=4, max_context_tokens=max_context_tokens, **settings))


@asynccontextmanager
async def worker_on(engine: TorchEngine, folder: Path, *middlewares: Any, **rollout: Any) -> AsyncIterator[Bench]:
    """A worker that reaches the engine over HTTP."""
    app = make_app(engine)
    app.middlewares.extend(middlewares)
    async with serving(app) as url:
        client = HttpEngine(lambda: url, deadline_seconds=1.0, silence_seconds=TIMEOUT_SECONDS, part_seconds=0.0)
        try:
            yield Bench(folder, None, engine=lambda *_: client, max_tokens=6, **rollout)
        finally:
            await client.close()
            await engine.close()


async def only_rollout(bench: Bench) -> Trajectory:
    """Admits one rollout, runs all its attempts and returns what it ended with."""
    group_id = bench.admit(turns=2)
    await bench.worker.run_queued()
    bench.ledger.groups.close(group_id)
    (member,) = bench.ledger.groups.load(group_id).members
    return member.trajectory


async def undisturbed(folder: Path) -> Trajectory:
    async with worker_on(make_engine(), folder / "undisturbed") as bench:
        return await only_rollout(bench)


def same_tokens(one: Trajectory, other: Trajectory) -> bool:
    return [call.response_ids for call in one.calls] == [call.response_ids for call in other.calls]


def errors(bench: Bench) -> list[tuple[str, str]]:
    """Status and error of the attempts that were tried again."""
    retried = [event.fields for event in bench.ledger.events() if event.kind == "rollout_retried"]
    return [(str(fields["status"]), str(fields["error"])) for fields in retried]


@pytest.mark.parametrize(("spoil", "says"), SPOILED)
async def test_an_answer_that_cannot_be_a_sample_is_an_engine_error(
    spoil: Callable[[Body], Any], says: str, tmp_path: Path
) -> None:
    async with worker_on(make_engine(), tmp_path, spoiling(spoil)) as bench:
        trajectory = await only_rollout(bench)
        ((status, error),) = errors(bench)
        assert status == "error_engine" and says in error
        assert run_totals(bench.ledger).attempts == {"final": 1, "retried": 1}
    assert trajectory.status.countable
    assert same_tokens(trajectory, await undisturbed(tmp_path)), "the next attempt draws the same"


class BrokenPass:
    """Stands before the engine's forward pass; its first call fails, and `heal` ends that."""

    def __init__(self, engine: TorchEngine, kind: str) -> None:
        self.kind, self._extend, self._healed = kind, engine.forward.extend, Event()
        engine.forward.extend = self.extend  # type: ignore[method-assign]

    def extend(self, spans: list[Any]) -> torch.Tensor:
        if self.kind == "hangs" and not self._healed.is_set():
            self._healed.wait(60)
        logits_NV = self._extend(spans)
        if self.kind == "nan" and not self._healed.is_set():
            self._healed.set()
            logits_NV = logits_NV * torch.nan
        return logits_NV

    def heal(self) -> None:
        self._healed.set()


@pytest.mark.parametrize(("kind", "says"), [("nan", "NaN or infinite"), ("hangs", "step thread hangs")])
async def test_a_pass_that_hangs_or_gives_nan_is_an_engine_error(kind: str, says: str, tmp_path: Path) -> None:
    engine = make_engine(step_timeout_seconds=2.0 if kind == "hangs" else 120.0)
    broken = BrokenPass(engine, kind)
    async with worker_on(engine, tmp_path) as bench:
        attempts = asyncio.create_task(only_rollout(bench))
        await until(lambda: bool(errors(bench)))
        broken.heal()
        trajectory = await attempts
        ((status, error),) = errors(bench)
        assert status == "error_engine" and says in error
    assert trajectory.status.countable
    assert same_tokens(trajectory, await undisturbed(tmp_path))


def deadline(bench: Bench) -> float:
    """Of the one lease that there is."""
    with bench.ledger.read() as connection:
        return float(connection.execute(sa.select(rollouts.c.deadline)).scalar_one() or 0.0)


async def test_a_response_longer_than_the_lease_costs_no_attempt(tmp_path: Path) -> None:
    """The engine is slow but lives: until it has been asked for longer than its silence would be borne, and its lease
    would have ended several times."""
    engine = make_engine()
    slow = BrokenPass(engine, "hangs")
    async with worker_on(engine, tmp_path, lease_seconds=TIMEOUT_SECONDS) as bench:
        rollout = asyncio.create_task(only_rollout(bench))
        await until(lambda: engine.active_requests > 0)
        for _ in range(6):
            bench.now += 0.9 * TIMEOUT_SECONDS
            assert bench.ledger.rollouts.expire() == 0
            await until(lambda: deadline(bench) == bench.now + TIMEOUT_SECONDS)
        slow.heal()
        trajectory = await rollout
        assert not errors(bench)
    assert trajectory.status.countable
    assert same_tokens(trajectory, await undisturbed(tmp_path))


async def test_a_rollout_that_lost_its_lease_in_mid_response_is_given_up(tmp_path: Path) -> None:
    engine = make_engine()
    slow = BrokenPass(engine, "hangs")
    async with worker_on(engine, tmp_path, lease_seconds=TIMEOUT_SECONDS) as bench:
        bench.admit(turns=2)
        (lease,) = bench.ledger.rollouts.claim("this", 1, TIMEOUT_SECONDS)
        rollout = asyncio.create_task(bench.worker.run_rollout(lease, await bench.pool.acquire()))
        await until(lambda: engine.active_requests > 0)
        bench.now += 2 * TIMEOUT_SECONDS
        assert bench.ledger.rollouts.expire() == 1
        assert await rollout is None
        slow.heal()
        await until(lambda: engine.active_requests == 0)
        assert "lease_lost" in bench.kinds()


async def test_a_prompt_of_another_vocabulary_fails_as_often_as_is_allowed(tmp_path: Path) -> None:
    async with worker_on(make_engine(vocab_size=100), tmp_path) as bench:
        bench.admit()
        await bench.worker.run_queued()
        assert status_counts(bench.ledger) == {"error_engine": 1}
        assert run_totals(bench.ledger).attempts == {"final": 1, "retried": 2}
        assert all("the vocabulary has only the ids 0 to 99" in error for _, error in errors(bench))


@pytest.mark.parametrize(("loop", "turn"), [("latest", 0), ("append", 0), ("append", 1)])
async def test_a_prompt_longer_than_the_context_ends_the_rollout_and_is_never_cut(
    loop: str, turn: int, tmp_path: Path
) -> None:
    async with worker_on(make_engine(), tmp_path / "roomy", loop=loop) as bench:
        whole = await only_rollout(bench)
    no_room = len(whole.calls[turn].prompt_ids)
    async with worker_on(make_engine(max_context_tokens=no_room), tmp_path / "tight", loop=loop) as bench:
        cut = await only_rollout(bench)
        assert status_counts(bench.ledger) == {"truncated_tokens": 1}
        assert run_totals(bench.ledger).attempts == {"final": 1}, "another attempt would not fit either"
    assert [call.prompt_ids for call in cut.calls] == [call.prompt_ids for call in whole.calls[:turn]]
    assert same_tokens(cut, msgspec.structs.replace(whole, calls=whole.calls[:turn]))
