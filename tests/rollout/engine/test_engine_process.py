"""The engine process follows the ledger: address, newer policies, refusals, metrics, a clean stop."""

import asyncio
from pathlib import Path

import pytest
import torch
from engine_models import make_model, make_requests, reference_logprobs
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from quartet.config import Recipe
from quartet.data.ledger import Ledger
from quartet.observe.record import read_records
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import save_policy
from quartet.recipe_file import parse_recipe
from quartet.rollout.engine import server
from quartet.rollout.engine.http import HttpEngine
from quartet.rollout.engine.server import run_engine


def publish(folder: Path, *, seed: int, canary_seed: int | None = None) -> str:
    """A policy whose canary is that of `canary_seed`: of itself unless told otherwise."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    save_policy(make_model(seed=seed), tokenizer, folder)
    scored_by = make_model(seed=seed if canary_seed is None else canary_seed)
    write_canary(folder, scored_by, [fixed_sequence(512, 64)])
    return str(folder)


def commit(ledger: Ledger, path: str) -> None:
    """What the trainer's commit does to the policies."""
    with ledger._database.write() as connection:
        ledger._insert_policy(connection, path, train_step=1)


def tiny_recipe(dtype: str = "float32") -> Recipe:
    engine = {"max_slots": 4, "dtype": dtype}
    return parse_recipe(
        {"name": "engine", "model": {"path": "unused"}, "env": {"name": "bandit"}, "engine": engine}, "test"
    )


async def until_version(engine: HttpEngine, version: int) -> None:
    async with asyncio.timeout(30):
        while await engine.version() != version:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_the_engine_process_follows_the_ledger(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "METRICS_SECONDS", 0.0)
    ledger = Ledger.create(tmp_path)
    ledger.register_initial_policy(publish(tmp_path / "p0", seed=0))
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(dtype), tmp_path, stop))
    engine = HttpEngine(lambda: ledger.module_url("engine"))
    request = make_requests(1)[0]
    assert set((await engine.generate(request)).versions) == {0}
    commit(ledger, publish(tmp_path / "p1", seed=1))
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
    records = read_records(tmp_path / "metrics.jsonl")
    assert {record["kind"] for record in records} == {"engine", "policy_load"}
    assert [record["version"] for record in records if record["kind"] == "policy_load"] == [1]
    ledger.close()


async def test_a_policy_that_fails_its_canary_is_recorded_and_not_served(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.register_initial_policy(publish(tmp_path / "p0", seed=0))
    stop = asyncio.Event()
    process = asyncio.create_task(run_engine(tiny_recipe(), tmp_path, stop))
    engine = HttpEngine(lambda: ledger.module_url("engine"))
    await engine.version()
    commit(ledger, publish(tmp_path / "p1", seed=1, canary_seed=2))
    async with asyncio.timeout(30):
        while not ledger.latest_is_settled():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert "policy_refused" in [event.kind for event in ledger.events()]
    assert ledger.value("served_version") == 0
    assert set((await engine.generate(make_requests(1)[0])).versions) == {0}
    stop.set()
    await process
    await engine.close()
    ledger.close()
