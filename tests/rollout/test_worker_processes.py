"""The worker's entry point with the real engine and the real environment host, found through the ledger."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from itertools import count, pairwise
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quartet.config import Recipe
from quartet.engine.scheduler import Scheduler
from quartet.engine.server import run_engine
from quartet.env.host import run_env_host
from quartet.errors import EngineError
from quartet.ledger import Ledger
from quartet.ledger.policy_rows import insert_policy
from quartet.part import NoSettings
from quartet.policy.model import make_model
from quartet.policy.save import save_policy
from quartet.policy.tokenizer import train_tokenizer
from quartet.recipe.file import parse_recipe
from quartet.report.follow import Follower
from quartet.report.sinks.opentelemetry import OpenTelemetrySink
from quartet.report.totals import status_counts
from quartet.rollout.worker import run_worker
from quartet.types import RolloutPlan, Task
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "new"
    texts = ["Pull the left arm.\nbutton left [1]\nbutton right [2]", "click left [1]"]
    tokenizer = train_tokenizer(texts, 600)
    save_policy(make_model(len(tokenizer), hidden_size=32, num_layers=2, num_heads=2, seed=0), tokenizer, folder)
    return folder


def recipe_of(policy: Path, loop: str, **engine: int) -> Recipe:
    data = {
        "name": "rollouts",
        "model": {"path": str(policy)},
        "env": {"name": "bandit", "sessions": 4},
        "rollout": {"loop": loop, "max_turns": 3, "max_tokens": 6},
        "engine": {"max_context_tokens": 256, **engine},
    }
    return parse_recipe(data, "test")


@asynccontextmanager
async def running(entry, recipe: Recipe, folder: Path, **options: str):
    stop = asyncio.Event()
    task = asyncio.create_task(entry(recipe, folder, stop, **options))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_rollouts_through_engine_and_host(policy, tmp_path, loop):
    recipe = recipe_of(policy, loop)
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial(str(policy))
    task = Task(env="bandit", family="named", seed=1, params={"turns": 2})
    group = ledger.groups.admit(RolloutPlan(task=task, num_rollouts=8, max_turns=3))
    async with (
        running(run_worker, recipe, tmp_path / "run") as worker,  # before the others: it waits for them
        running(run_engine, recipe, tmp_path / "run") as engine,
        running(run_env_host, recipe, tmp_path / "run") as host,
    ):
        await until(lambda: sum(status_counts(ledger).values()) == 8, worker, engine, host)
    assert not {"error_env", "error_engine"} & status_counts(ledger).keys(), ledger.events()
    ledger.groups.close(group)
    trajectories = [member.trajectory for member in ledger.groups.load(group).members]
    assert len(trajectories) == 8
    for trajectory in trajectories:
        assert 1 <= len(trajectory.turns) == len(trajectory.calls) <= 3
        assert trajectory.oldest_version == 0
        branches = [
            call.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
            for before, call in pairwise(trajectory.calls)
        ]
        assert all(branches) or loop == "latest"
    assert len({tuple(call.response_ids) for t in trajectories for call in t.calls}) > 8, "sampled, not repeated"


async def test_a_host_that_comes_back_on_another_port_is_found(policy, tmp_path):
    recipe = recipe_of(policy, "latest")
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial(str(policy))
    task = Task(env="bandit", family="fixed", seed=1, params={"turns": 3, "delay_seconds": 0.02})
    async with running(run_engine, recipe, tmp_path / "run"), running(run_worker, recipe, tmp_path / "run"):
        async with running(run_env_host, recipe, tmp_path / "run"):
            ledger.groups.admit(RolloutPlan(task=task, num_rollouts=16, max_turns=3))
            await until(lambda: sum(status_counts(ledger).values()) >= 2)
            first_url = ledger.modules.url("env")
        async with running(run_env_host, recipe, tmp_path / "run"):
            await until(lambda: sum(status_counts(ledger).values()) == 16)
            assert ledger.modules.url("env") != first_url
    counts = status_counts(ledger)
    assert set(counts) <= {"completed", "truncated_turns"}, ledger.events()


async def test_spans_of_three_modules_for_a_rollout_are_one_trace(policy, tmp_path):
    recipe = recipe_of(policy, "append")
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial(str(policy))
    task = Task(env="bandit", family="named", seed=1, params={"turns": 2})
    ledger.groups.admit(RolloutPlan(task=task, num_rollouts=6, max_turns=3))
    async with (
        running(run_engine, recipe, tmp_path / "run") as engine,
        running(run_env_host, recipe, tmp_path / "run") as host,
        running(run_worker, recipe, tmp_path / "run") as worker,
    ):
        await until(lambda: sum(status_counts(ledger).values()) == 6, worker, engine, host)
    ledger.close()
    exporter = InMemorySpanExporter()
    OpenTelemetrySink(NoSettings(), recipe, tmp_path / "run", exporter).write(Follower(tmp_path / "run").read())
    spans = exporter.get_finished_spans()
    roots = {span.context.trace_id: span for span in spans if span.name == "rollout"}
    assert len(roots) == 6
    for trace_id, root in roots.items():
        parts = [span for span in spans if span.context.trace_id == trace_id and span is not root]
        assert root.parent is None and all(span.parent == root.context for span in parts)
        did = {(span.attributes["quartet.role"], span.name) for span in parts}
        assert did >= {("worker", "generate"), ("engine", "answer"), ("env", "reset"), ("env", "step")}
        asked = sum(span.name == "generate" for span in parts)
        assert sum(span.name == "answer" for span in parts) == asked >= 1
        assert all(root.start_time <= span.start_time < span.end_time <= root.end_time + 1e6 for span in parts)


async def test_a_damaged_newest_policy_costs_neither_engine_nor_worker(policy, tmp_path):
    """Both start with the newest whole one."""
    recipe, run = recipe_of(policy, "append"), tmp_path / "run"
    ledger = Ledger.create(run)
    ledger.policies.register_initial(str(policy))
    newest = shutil.copytree(policy, run / "policies" / "v000001")
    (newest / "tokenizer.json").write_text("{")
    (newest / "model.safetensors").write_bytes(b"half")
    with ledger.db.write() as connection:
        insert_policy(ledger.db, connection, str(newest), train_step=1)
    ledger.groups.admit(RolloutPlan(task=Task(env="bandit", family="named", seed=1), num_rollouts=2, max_turns=3))
    async with (
        running(run_engine, recipe, run) as engine,
        running(run_env_host, recipe, run) as host,
        running(run_worker, recipe, run) as worker,
    ):
        await until(lambda: sum(status_counts(ledger).values()) == 2, engine, host, worker)
    assert not {"error_env", "error_engine"} & status_counts(ledger).keys()


async def test_an_engine_that_is_told_to_end_costs_no_rollout(policy, tmp_path):
    """It is drained: what it was sampling goes on at the other one, and when it is back it is used again."""
    recipe, run = recipe_of(policy, "append", replicas=2), tmp_path / "run"
    ledger = Ledger.create(run)
    ledger.policies.register_initial(str(policy))
    task = Task(env="bandit", family="named", seed=1, params={"turns": 3})
    second = "engine-2"
    async with running(run_engine, recipe, run), running(run_env_host, recipe, run), running(run_worker, recipe, run):
        async with running(run_engine, recipe, run, module=second):
            await until(lambda: ledger.modules.url(second))
            group = ledger.groups.admit(RolloutPlan(task=task, num_rollouts=40, max_turns=3))
            await until(lambda: sum(status_counts(ledger).values()) >= 4)
            first_url = ledger.modules.url(second)
        async with running(run_engine, recipe, run, module=second):
            await until(lambda: sum(status_counts(ledger).values()) == 40)
            assert ledger.modules.url(second) != first_url
    assert not [event for event in ledger.events() if event.kind in ("rollout_retried", "lease_lost")]
    assert not {"error_env", "error_engine"} & status_counts(ledger).keys()
    ledger.groups.close(group)
    assert len(ledger.groups.load(group).members) == 40


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_pass_that_fails_ends_the_engine_and_costs_no_attempt(policy, tmp_path, monkeypatch):
    """The rollouts wait for the next engine, also while the one that has ended still answers."""
    recipe, run = recipe_of(policy, "latest"), tmp_path / "run"
    ledger = Ledger.create(run)
    ledger.policies.register_initial(str(policy))
    step, passes = Scheduler.step, count()

    def fails_once(scheduler: Scheduler) -> None:
        if next(passes) == 20:
            raise RuntimeError("out of memory")
        step(scheduler)

    monkeypatch.setattr(Scheduler, "step", fails_once)
    async with running(run_env_host, recipe, run), running(run_worker, recipe, run):
        ledger.groups.admit(RolloutPlan(task=Task(env="bandit", family="fixed", seed=1), num_rollouts=16, max_turns=3))
        with pytest.raises(EngineError, match="out of memory"):
            await run_engine(recipe, run, asyncio.Event())
        async with running(run_engine, recipe, run):
            await until(lambda: sum(status_counts(ledger).values()) == 16)
    assert not [event for event in ledger.events() if event.kind == "rollout_retried"]
    assert "error_engine" not in status_counts(ledger)
