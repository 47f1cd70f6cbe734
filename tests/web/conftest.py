"""Runs to look at, and a way to ask for their pages without a server."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect
from starlette.types import ASGIApp

from benchmarks.bandit import bandit_recipe
from quartet.env.browser import find_chromium
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import RolloutPlan, Task

expect.set_options(timeout=60_000)  # not 5 s: a page of a busy machine takes longer, and how long says nothing
SCRIPT = "<script>document.title='taken over'</script><img src=x onerror=\"document.title='taken over'\">"
"""What a web page or a model may have written."""


def ask(app: ASGIApp, host: str = "localhost", **options) -> httpx.AsyncClient:
    """A client whose requests go straight into the application, addressed to `host`."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url=f"http://{host}", **options
    )


def make_run(run_dir: Path) -> Ledger:
    """The ledger of a run in its beginning, which says `SCRIPT` wherever a run can say anything."""
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.toml").write_text(to_toml(bandit_recipe(Path("policy"))))
    ledger = Ledger.create(run_dir)
    ledger.policies.register_initial("policy")
    ledger.set_value("stop_reason", SCRIPT)
    ledger.event("error_agent", traceback=SCRIPT)
    Presence(ledger.modules, "trainer", interval_seconds=0).waits(SCRIPT, SCRIPT)
    task = Task(env="bandit", family=SCRIPT, seed=1, params={})
    ledger.groups.admit(RolloutPlan(task=task, num_rollouts=2, max_turns=3))
    return ledger


def record_steps(run_dir: Path) -> None:
    """Metrics of three train steps."""
    recorder = Recorder(run_dir, "trainer")
    for step in range(1, 4):
        recorder.metric("train", step=step, version=step, entropy_nats=0.5 / step, gradient_norm=2.0)
    recorder.close()


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """A run that nobody works on."""
    make_run(tmp_path / "run").close()
    record_steps(tmp_path / "run")
    return tmp_path / "run"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
