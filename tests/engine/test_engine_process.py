"""The engine process follows the ledger: address, newer policies, refusals, metrics, a clean stop."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from engine_models import DAMAGES, make_model, make_requests, publish, reference_logprobs, without_checksums

from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine import service, start
from quartet.engine.base import ServedEngine
from quartet.engine.http import HttpEngine
from quartet.engine.server import run_engine
from quartet.engine.start import start_with_newest
from quartet.errors import CheckpointError
from quartet.ledger import Ledger
from quartet.ledger.policy_rows import insert_policy
from quartet.recipe.file import parse_recipe
from quartet.telemetry.records import read_records
from quartet.types import Policy, RolloutPlan, Task
from tests.policy.mutations import damage

pytestmark = pytest.mark.slow


def published(folder: Path, *, seed: int) -> str:
    return str(publish(make_model(seed=seed), folder))


def commit(ledger: Ledger, path: str) -> None:
    """What the trainer's commit does to the policies."""
    with ledger.db.write() as connection:
        insert_policy(ledger.db, connection, path, train_step=1)


def tiny_recipe(dtype: str = "float32", schedule: str = "rollout_wise") -> Recipe:
    engine = {"max_slots": 4, "dtype": dtype}
    data = {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": engine}
    return parse_recipe(data | {"admission": {"schedule": schedule}}, "test")


async def until_version(engine: HttpEngine, version: int) -> None:
    async with asyncio.timeout(30):
        while await engine.version() != version:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_the_engine_process_follows_the_ledger(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "METRICS_SECONDS", 0.0)
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(dtype), tmp_path, stop))
    engine = HttpEngine(lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir))
    request = make_requests(1)[0]
    assert set((await engine.generate(request)).versions) == {0}
    commit(ledger, published(tmp_path / "p1", seed=1))
    await until_version(engine, 1)
    result = await engine.generate(request)
    assert set(result.versions) == {1}
    expected = reference_logprobs(make_model(seed=1), request, result.token_ids)
    drawn = expected.gather(-1, torch.tensor(result.token_ids)[:, None])[:, 0]
    gap = (torch.tensor(result.logprobs) - drawn).abs().max()
    assert gap < 1e-4 if dtype == "float32" else 1e-4 < gap < 0.15
    stop.set()
    await process
    await engine.close()
    records = list(read_records(tmp_path, "engine"))
    assert [record["loaded_version"] for record in records if "loaded_version" in record] == [1]
    assert any("generated_tokens_per_second" in record for record in records)
    ledger.close()


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_policy_is_recorded_and_not_served(damage: Callable[[Path], None], tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(), tmp_path, stop))
    engine = HttpEngine(lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir))
    await engine.version()
    folder = published(tmp_path / "p1", seed=1)
    damage(Path(folder))
    commit(ledger, folder)
    async with asyncio.timeout(30):
        while not ledger.policies.latest_is_settled():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (refused,) = [event.fields for event in ledger.events() if event.kind == "policy_refused"]
    assert (refused["version"], refused["module"]) == (1, "engine") and folder in str(refused["error"])
    assert ledger.value("served_version") == 0
    assert set((await engine.generate(make_requests(1)[0])).versions) == {0}
    stop.set()
    await process
    await engine.close()
    ledger.close()


@pytest.mark.parametrize("damage", DAMAGES)
async def test_an_engine_that_finds_a_damaged_policy_starts_with_the_one_before(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
    folder = published(tmp_path / "p1", seed=1)
    damage(Path(folder))
    commit(ledger, folder)
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(), tmp_path, stop))
    engine = HttpEngine(lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir))
    assert set((await engine.generate(make_requests(1)[0])).versions) == {0}
    async with asyncio.timeout(30):
        while ledger.modules.all()[0].state != "serving version 0, 1 was rejected":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    (refused,) = [event.fields for event in ledger.events() if event.kind == "policy_refused"]
    assert (refused["version"], refused["module"]) == (1, "engine") and folder in str(refused["error"])
    assert ledger.policies.latest_is_settled() and ledger.value("served_version") == 0
    commit(ledger, published(tmp_path / "p2", seed=2))
    await until_version(engine, 2)
    stop.set()
    await process
    await engine.close()
    ledger.close()


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 60), marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
async def test_older_policy_serves_when_loading_a_damaged_one_raises(name: str, seeds: range, tmp_path: Path) -> None:
    """Without checksums, as an older Quartet left its policies: the libraries' own errors are met."""
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
    newest = without_checksums(publish(make_model(seed=1), tmp_path / "p1"))
    commit(ledger, str(newest))
    whole, served = (newest / name).read_bytes(), set[int]()
    for seed in seeds:
        damage(newest / name, Random(seed))
        started = await start_with_newest(tiny_recipe(), ledger, "engine")
        served.add(await started.engine.version())
        await started.engine.close()
        (newest / name).write_bytes(whole)
    assert 0 in served and served <= {0, 1}
    ledger.close()


async def test_a_policy_that_is_deleted_while_an_engine_loads_it_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
    commit(ledger, published(tmp_path / "p1", seed=1))
    load = start.start_engine

    async def delete_and_load(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        if policy.version == 1:
            commit(ledger, published(tmp_path / "p2", seed=2))
            ledger.policies.mark_deleted(1)
            shutil.rmtree(policy.path)
        return await load(recipe, policy, run_dir, module)

    monkeypatch.setattr(start, "start_engine", delete_and_load)
    started = await start_with_newest(tiny_recipe(), ledger, "engine-2")
    assert (await started.engine.version(), started.refused_version) == (2, -1)
    assert not [event for event in ledger.events() if event.kind == "policy_refused"]
    await started.engine.close()
    ledger.close()


async def test_an_engine_without_any_undamaged_policy_does_not_start(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    for number in range(2):
        folder = published(tmp_path / f"p{number}", seed=number)
        DAMAGES[0](Path(folder))
        commit(ledger, folder)
    with pytest.raises(CheckpointError, match=r"canary in .*p1 differ"):
        await run_engine(tiny_recipe(), tmp_path, asyncio.Event())
    assert [event.fields["version"] for event in ledger.events() if event.kind == "policy_refused"] == [0, 1]
    ledger.close()


async def test_between_batches_new_weights_wait_for_the_last_training_rollout(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(published(tmp_path / "p0", seed=0))
    group_id = ledger.groups.admit(
        RolloutPlan(task=Task(env="bandit", family="fixed", seed=0), num_rollouts=1, max_turns=1)
    )
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(schedule="one_step_off"), tmp_path, stop))
    engine = HttpEngine(lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir))
    assert await engine.version() == 0
    commit(ledger, published(tmp_path / "p1", seed=1))
    for _ in range(3):  # looks
        ledger.notifier.notify("engine")
        await asyncio.sleep(0.05)
    assert (await engine.version(), ledger.policies.latest_is_settled()) == (0, False)
    ledger.groups.close(group_id)
    ledger.groups.drop(group_id, "too_few_countable")
    await until_version(engine, 1)
    async with asyncio.timeout(30):
        while not ledger.policies.latest_is_settled():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    stop.set()
    await process
    await engine.close()
    ledger.close()
