"""Engines join and leave with requests in flight: real processes, and one router that follows the run's members."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path

import aiohttp
import pytest
from engine_models import make_model, make_requests
from msgspec.structs import replace
from test_engine_process import commit, published, tiny_recipe

from quartet.access.token import bearer, run_token
from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.engine.connect import EngineClients
from quartet.engine.router import Router
from quartet.engine.torch_engine import TorchEngine
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.runtime.start_process import StartedHere, start_process
from quartet.types import FinishReason, Sampling
from tests.waiting import until

pytestmark = pytest.mark.slow
Builder = Callable[..., TorchEngine]
CLIENTS, MAX_TOKENS = 6, 120


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A run with one policy, whose engine has not started."""
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
        (ledger.run_dir / "config.toml").write_text(to_toml(tiny_recipe()))
        (ledger.run_dir / "logs").mkdir()
        run_token(ledger.run_dir)
        yield ledger


@contextmanager
def engine_process(ledger: Ledger, module: str) -> Iterator[StartedHere]:
    log = ledger.run_dir / "logs" / f"{module}.stderr"
    process = start_process("forkserver", module, ledger.run_dir, log, threads=1)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def health(ledger: Ledger, module: str) -> dict[str, int]:
    """What an engine's process says of itself; nothing while it does not answer."""
    headers, url = bearer(run_token(ledger.run_dir)), ledger.modules.url(module)
    try:
        async with aiohttp.ClientSession(headers=headers) as session, session.get(f"{url}/health") as response:
            return await response.json()
    except aiohttp.ClientError:
        return {}


async def until_busy(ledger: Ledger, module: str) -> None:
    async with asyncio.timeout(240):
        while not (await health(ledger, module)).get("active_requests"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def following(ledger: Ledger) -> AsyncIterator[Router]:
    """The router of a worker, which looks at the members of the run again and again."""
    clients = EngineClients(tiny_recipe(), ledger)

    async def follow() -> None:
        while True:
            await clients.follow_members()
            await asyncio.sleep(0.05)

    task = asyncio.create_task(follow())
    try:
        yield clients.router
    finally:
        task.cancel()
        await clients.router.close()


class Answers:
    """Clients that ask again as soon as they have an answer, so that requests are in flight at any moment."""

    def __init__(self, router: Router) -> None:
        self._router, self._enough = router, False
        self.asked: dict[int, int] = {}
        self.results: list[tuple[int, GenerateResult]] = []

    async def ask(self, client: int) -> None:
        while not self._enough:
            self.asked[client] = self.asked.get(client, 0) + 1
            request = request_of(client, f"{client}-{self.asked[client]}")
            self.results.append((client, await self._router.generate(request)))

    async def more(self) -> None:
        """Wait until every client has asked and got its answer since now."""
        enough = len(self.results) + 2 * CLIENTS
        await until(lambda: len(self.results) >= enough)

    def end(self) -> None:
        self._enough = True


def request_of(client: int, request_id: str) -> GenerateRequest:
    (request,) = make_requests(1)
    sampling = Sampling(max_tokens=MAX_TOKENS, seed=client)
    return replace(request, request_id=request_id, prompt_ids=request.prompt_ids[:30], sampling=sampling)


async def test_engines_join_stop_die_and_return_and_no_request_is_lost(
    ledger: Ledger, tmp_path: Path, engine_of: Builder
) -> None:
    alone = engine_of(make_model())
    expected = [await alone.generate(request_of(client, str(client))) for client in range(CLIENTS)]
    with ExitStack() as processes:
        async with following(ledger) as router, asyncio.TaskGroup() as group:
            answers = Answers(router)
            dies = processes.enter_context(engine_process(ledger, "engine"))
            clients = [group.create_task(answers.ask(client)) for client in range(CLIENTS)]
            await answers.more()

            leaves = processes.enter_context(engine_process(ledger, ledger.modules.join("engine", ["engine"])))
            await until_busy(ledger, "engine-2")
            leaves.terminate()
            assert await asyncio.to_thread(leaves.wait, 240) == 0
            ledger.modules.leave("engine-2")
            await answers.more()

            processes.enter_context(engine_process(ledger, ledger.modules.join("engine", ["engine"])))
            await until_busy(ledger, "engine-3")
            await until_busy(ledger, "engine")
            dies.kill()
            assert await asyncio.to_thread(dies.wait, 240) == -signal.SIGKILL
            await answers.more()

            commit(ledger, published(tmp_path / "p1", seed=1))
            processes.enter_context(engine_process(ledger, "engine"))
            await until_busy(ledger, "engine")
            assert (await health(ledger, "engine"))["version"] == 1, "it has caught up before it serves"
            await answers.more()
            answers.end()
        assert len(answers.results) == sum(answers.asked.values()) and all(client.done() for client in clients)
    for client, result in answers.results:
        assert (result.finish_reason, len(result)) == (FinishReason.LENGTH, MAX_TOKENS)
        assert result.versions == sorted(result.versions)
        if set(result.versions) == {0}:
            assert result.token_ids == expected[client].token_ids, "continued where it was, nothing drawn anew"
    assert any(result.versions[0] == 1 for _, result in answers.results)
