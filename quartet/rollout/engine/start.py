"""The engine that a recipe asks for, with a policy loaded and proved. One function per kind."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from quartet.config import Recipe
from quartet.data.evaluation import is_evaluation
from quartet.data.ledger import Ledger
from quartet.errors import CheckpointError, UnusablePolicyError
from quartet.registry import lookup
from quartet.rollout.engine.base import ServedEngine
from quartet.rollout.engine.loading import loaded
from quartet.types import Policy


class Started(NamedTuple):
    engine: ServedEngine
    refused_version: int
    """Of the newest policy, when an older one is served in its place; else -1."""


async def start_with_newest(recipe: Recipe, ledger: Ledger, module: str) -> Started:
    """The engine with the newest policy that passes its checks; events `policy_refused` name the newer ones.

    Raises what `start_engine` raises, and `UnusablePolicyError` with the words about the newest when no policy passes.
    """
    refusals: dict[int, CheckpointError] = {}
    for policy in ledger.loadable_policies():
        try:
            engine = await start_engine(recipe, policy, ledger.run_dir, module)
        except CheckpointError as error:
            refusals[policy.version] = error
            ledger.event("policy_refused", module=module, version=policy.version, error=str(error))
        else:
            return Started(engine, max(refusals, default=-1))
    if not refusals:
        raise UnusablePolicyError("this run has no policy on its disk", "restore its folders")
    newest = next(iter(refusals.values()))
    raise UnusablePolicyError(newest.what, newest.advice) from newest


async def start_engine(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
    """The engine of `module`, one of `Recipe.engine_modules`.

    Raises `CheckpointError` for a policy that fails its canary, `SetupError` for a server that cannot be used,
    `EngineError` when loading takes too long.
    """
    return await lookup("engine", recipe.engine.kind, ENGINES)(recipe, policy, run_dir, module)


async def _torch(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
    from quartet.rollout.engine.torch_engine import open_torch

    return await loaded(lambda: open_torch(recipe, policy), timeout_seconds=recipe.engine.load_timeout_seconds)


async def _vllm(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
    from quartet.rollout.engine.vllm.engine import open_vllm

    return await open_vllm(recipe, policy, run_dir / "logs" / f"{module}.vllm.stderr")


async def _openai(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
    from quartet.rollout.engine.openai.engine import open_openai

    return await open_openai(recipe, policy, trains=not is_evaluation(run_dir))


ENGINES: dict[str, Callable[[Recipe, Policy, Path, str], Awaitable[ServedEngine]]] = {
    "torch": _torch,
    "vllm": _vllm,
    "openai": _openai,
}
