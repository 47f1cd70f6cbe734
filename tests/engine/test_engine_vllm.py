"""A vLLM server as a child: it starts, is watched, and leaves nothing behind."""

import asyncio
import importlib.util
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import torch
from engine_kinds import VLLM_ARGUMENTS, VLLM_KEY_VARIABLE, by_url, engine_recipe, needs_vllm
from engine_models import make_model, make_requests, publish, reference_logprobs
from test_engine_process import commit

from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine.api import make_app
from quartet.engine.http import HttpEngine
from quartet.engine.remote.server import InferenceServer, ServerRefusedError
from quartet.engine.server import run_engine
from quartet.engine.vllm.engine import VllmEngine, open_vllm
from quartet.engine.vllm.process import VllmProcess
from quartet.errors import CheckpointError, EngineError, SetupError
from quartet.ledger import Ledger
from quartet.policy.make import make_policy
from quartet.types import FinishReason, Policy, Sampling
from tests.rollout.serving import serving
from tests.waiting import until


def first_policy(folder: Path) -> Policy:
    return Policy(version=0, path=str(publish(make_model("qwen3_tied"), folder / "policy")), train_step=0)


def interpreter(folder: Path, script: str) -> str:
    """A program that stands where an interpreter would."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def recipe_with(python: str, **vllm: object) -> Recipe:
    return engine_recipe("vllm", python=python, **vllm)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
async def test_without_vllm_the_run_ends_and_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"quartet-rl\[vllm\]"):
        await open_vllm(recipe_with(sys.executable), first_policy(tmp_path), tmp_path / "log")


async def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"engine\.python: /nowhere/python does not start"):
        await open_vllm(recipe_with("/nowhere/python"), first_policy(tmp_path), tmp_path / "log")


async def test_a_server_that_dies_at_once_is_not_waited_for(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo no memory left >&2; exit 7")
    with pytest.raises(SetupError, match="vLLM ended with code 7: no memory left"):
        await open_vllm(recipe_with(python), first_policy(tmp_path), tmp_path / "log")


async def test_the_newest_error_in_the_log_is_told_and_not_the_end_that_it_caused(tmp_path: Path) -> None:
    """As vLLM writes it: a worker's error, the engine's death, and a request that met the dead engine."""
    log = "(Worker) ERROR RuntimeError: head_dim=16\\n(API) ERROR v1.EngineDeadError: EngineCore encountered an issue"
    python = interpreter(tmp_path, f"printf '{log}' >&2; sleep 600 & wait")
    process = VllmProcess(recipe_with(python), Path(first_policy(tmp_path).path), 64, tmp_path / "log")
    await until(lambda: "issue" in (tmp_path / "log").read_text())
    assert process.last_error() == "RuntimeError: head_dim=16"
    await process.close()


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(600)
async def test_a_policy_that_vllm_cannot_compute_ends_the_run_with_the_cause(tmp_path: Path) -> None:
    """vLLM's attention on a CPU takes heads of 32 dimensions and more."""
    make_policy(["press the button"], tmp_path / "narrow", vocab_size=600, hidden_size=32, num_layers=1, num_heads=2)
    policy = Policy(version=0, path=str(tmp_path / "narrow"), train_step=0)
    with pytest.raises(SetupError, match=r"vLLM cannot serve the policy: RuntimeError: .*head_dim=16"):
        await open_vllm(engine_recipe("vllm", arguments=VLLM_ARGUMENTS), policy, tmp_path / "log")


async def test_a_server_that_never_answers_is_ended(tmp_path: Path) -> None:
    python = interpreter(tmp_path, f"echo $$ > {tmp_path}/pid; sleep 600 & wait")
    with pytest.raises(SetupError, match="did not answer within"):
        await open_vllm(recipe_with(python, start_timeout_seconds=1.0), first_policy(tmp_path), tmp_path / "log")
    await until(lambda: not alive_in_group(int((tmp_path / "pid").read_text())))  # its child may take a moment to die


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(600)
async def test_the_engine_process_starts_it_follows_the_ledger_and_ends_it(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial(first_policy(tmp_path).path)
    stop = asyncio.Event()
    recipe = engine_recipe("vllm", arguments=VLLM_ARGUMENTS)
    process = asyncio.create_task(run_engine(recipe, tmp_path, stop))
    await until(lambda: bool(ledger.modules.url("engine")) or process.done())
    engine = HttpEngine(lambda: ledger.modules.url("engine"), token=run_token(ledger.run_dir))
    assert set((await engine.generate(make_requests(1)[0])).versions) == {0}
    commit(ledger, str(publish(make_model("qwen3_tied", seed=1), tmp_path / "p1")))
    async with asyncio.timeout(60):
        while await engine.version() != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert set((await engine.generate(make_requests(1)[0])).versions) == {1}
    stop.set()
    await process
    await engine.close()
    ledger.close()


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(600)
async def test_a_server_that_is_killed_fails_its_requests_and_the_health_check(tmp_path: Path) -> None:
    engine, group = await open_with_group(tmp_path)
    requests = [asyncio.create_task(engine.generate(request)) for request in make_requests(4)]
    await asyncio.sleep(0)
    os.kill(group, signal.SIGKILL)
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(outcome, EngineError) for outcome in outcomes)
    await until(lambda: group not in alive_in_group(group))
    with pytest.raises(EngineError, match="vLLM ended with code -9"):
        await engine.version()
    await engine.close()
    assert not alive_in_group(group)


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(600)
async def test_tokens_of_a_killed_server_are_kept(tmp_path: Path) -> None:
    """As a worker sees it: the call returns the beginning, and its log-probs are those of the policy."""
    model = make_model("qwen3_tied")
    engine, group = await open_with_group(tmp_path)
    async with serving(make_app(engine)) as url:
        client = HttpEngine(lambda: url, part_seconds=0.02, deadline_seconds=5)
        request = msgspec.structs.replace(make_requests(1)[0], sampling=Sampling(max_tokens=200, seed=5))
        generating = asyncio.create_task(client.generate(request))
        await until(lambda: len(engine.so_far(request.request_id).token_ids) >= 32)
        await asyncio.sleep(0.1)  # several times as long as between two parts
        os.kill(group, signal.SIGKILL)
        result = await generating
        await client.close()
    await engine.close()
    assert result.finish_reason is FinishReason.ABORT and 16 <= len(result.token_ids) < 200
    assert set(result.versions) == {0}
    expected = reference_logprobs(model, request, result.token_ids)
    told = expected.gather(-1, torch.tensor(result.token_ids)[:, None])[:, 0].tolist()
    assert result.logprobs == pytest.approx(told, abs=1e-4)


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(600)
async def test_a_policy_with_a_biased_output_projection_is_served_faithfully(vllm_url: str, tmp_path: Path) -> None:
    """Policies that Quartet makes have it. vLLM's own Qwen drops it; the code of transformers, which it can use, does
    not. A server by URL that drops it is found out, and told what it lacks."""
    model = make_model("qwen3_tied_biased")
    policy = Policy(version=0, path=str(publish(model, tmp_path / "p0")), train_step=0)
    with pytest.raises(CheckpointError, match="model-impl"):
        await open_vllm(by_url(vllm_url), policy, tmp_path / "log")
    engine = await open_vllm(engine_recipe("vllm", arguments=VLLM_ARGUMENTS), policy, tmp_path / "log")
    try:
        load = await engine.load_policy(publish(make_model("qwen3_tied_biased", seed=1), tmp_path / "p1"), 1)
        assert load.canary_gap is not None and load.canary_gap < 1e-3
        assert set((await engine.generate(make_requests(1)[0])).versions) == {1}
    finally:
        await engine.close()


@pytest.mark.vllm
@needs_vllm
async def test_a_call_that_the_worker_refuses_leaves_it_alive(vllm_url: str, tmp_path: Path) -> None:
    engine = await open_vllm(by_url(vllm_url), first_policy(tmp_path), tmp_path / "log")
    server = InferenceServer(vllm_url, api_key=os.environ[VLLM_KEY_VARIABLE])
    with pytest.raises(ServerRefusedError):
        await server.call("POST", "/collective_rpc", {"method": "no_such_method", "args": []}, dict[str, Any])
    await server.close()
    assert (await engine.generate(make_requests(1)[0])).token_ids
    await engine.close()


def alive_in_group(group: int) -> list[int]:
    """Process ids; who has died and waits to be reaped does not count."""
    alive = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process.pid)
    return alive


async def open_with_group(folder: Path) -> tuple[VllmEngine, int]:
    """Start a server; return its engine and its process group."""
    others = set(psutil.Process().children())
    engine = await open_vllm(engine_recipe("vllm", arguments=VLLM_ARGUMENTS), first_policy(folder), folder / "log")
    started = [child.pid for child in set(psutil.Process().children()) - others]
    (group,) = [pid for pid in started if os.getpgid(pid) == pid]
    return engine, group


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(300)
async def test_a_server_that_was_left_paused_is_used_again(vllm_url: str, tmp_path: Path) -> None:
    """As by an engine that died while it exchanged the weights."""
    server = InferenceServer(vllm_url, api_key=os.environ[VLLM_KEY_VARIABLE])
    await server.call("POST", "/pause?mode=keep&clear_cache=true", None, dict[str, Any])
    async with asyncio.timeout(200):
        engine = await open_vllm(by_url(vllm_url), first_policy(tmp_path), tmp_path / "log")
    assert set((await engine.generate(make_requests(1)[0])).versions) == {0}
    await engine.close()
    await server.close()
