"""The worker's entry point with the real engine and the real environment host, found through the ledger."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.env.host import run_env_host
from quartet.policy.load import save_policy
from quartet.policy.model import make_model
from quartet.policy.tokenizer import train_tokenizer
from quartet.recipe_file import parse_recipe
from quartet.rollout.engine.server import run_engine
from quartet.rollout.worker import run_worker
from quartet.types import RolloutPlan, Task


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("policy") / "new"
    texts = ["Pull the left arm.\nbutton left [1]\nbutton right [2]", "click left [1]"]
    tokenizer = train_tokenizer(texts, 600)
    save_policy(make_model(len(tokenizer), hidden_size=32, num_layers=2, num_heads=2, seed=0), tokenizer, folder)
    return folder


def recipe_of(policy: Path, loop: str) -> Recipe:
    data = {
        "name": "rollouts",
        "model": {"path": str(policy)},
        "env": {"name": "bandit", "sessions": 4},
        "rollout": {"loop": loop, "max_turns": 3, "max_tokens": 6},
        "engine": {"max_context_tokens": 256},
    }
    return parse_recipe(data, "test")


@asynccontextmanager
async def running(module, recipe: Recipe, folder: Path):
    stop = asyncio.Event()
    task = asyncio.create_task(module(recipe, folder, stop))
    try:
        yield task
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


async def until(condition, *tasks) -> None:
    async with asyncio.timeout(60):
        while not condition():
            for task in tasks:
                assert not task.done(), task.exception()
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("loop", ["append", "latest"])
async def test_rollouts_through_engine_and_host(policy, tmp_path, loop):
    recipe = recipe_of(policy, loop)
    ledger = Ledger.create(tmp_path / "run")
    ledger.register_initial_policy(str(policy))
    task = Task(env="bandit", family="named", seed=1, params={"turns": 2})
    group = ledger.admit(RolloutPlan(task=task, num_rollouts=8, max_turns=3))
    async with (
        running(run_worker, recipe, tmp_path / "run") as worker,  # before the others: it waits for them
        running(run_engine, recipe, tmp_path / "run") as engine,
        running(run_env_host, recipe, tmp_path / "run") as host,
    ):
        await until(lambda: sum(ledger.status_counts().values()) == 8, worker, engine, host)
    assert not {"error_env", "error_engine"} & ledger.status_counts().keys(), ledger.events()
    ledger.close_group(group)
    trajectories = [member.trajectory for member in ledger.load_group(group).members]
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
    ledger.register_initial_policy(str(policy))
    task = Task(env="bandit", family="fixed", seed=1, params={"turns": 3, "delay_seconds": 0.02})
    async with running(run_engine, recipe, tmp_path / "run"), running(run_worker, recipe, tmp_path / "run"):
        async with running(run_env_host, recipe, tmp_path / "run"):
            ledger.admit(RolloutPlan(task=task, num_rollouts=16, max_turns=3))
            await until(lambda: sum(ledger.status_counts().values()) >= 2)
            first_url = ledger.module_url("env")
        async with running(run_env_host, recipe, tmp_path / "run"):
            await until(lambda: sum(ledger.status_counts().values()) == 16)
            assert ledger.module_url("env") != first_url
    counts = ledger.status_counts()
    assert set(counts) <= {"completed", "truncated_turns"}, ledger.events()
