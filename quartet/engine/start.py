"""Start of the engine that a recipe names, with a loaded and verified policy."""

from pathlib import Path
from typing import NamedTuple

from quartet.config import Recipe
from quartet.engine.backend.base import Backend
from quartet.engine.base import ServedEngine
from quartet.errors import CheckpointError, UnusablePolicyError
from quartet.ledger import Ledger
from quartet.registry import build
from quartet.types import Policy


class Started(NamedTuple):
    engine: ServedEngine
    refused_version: int
    """Version of the newest policy if the engine rejected that policy and serves an older one, else -1."""


async def start_with_newest(recipe: Recipe, ledger: Ledger, module: str) -> Started:
    """Start the engine with the newest policy that passes its checks.

    Each newer policy, which failed its checks, is recorded in an event `policy_refused`. Raises the errors of
    `start_engine`, and `UnusablePolicyError` with the newest policy's error if no policy passes.
    """
    refusals: dict[int, CheckpointError] = {}
    for policy in ledger.policies.loadable():
        try:
            engine = await start_engine(recipe, policy, ledger.run_dir, module)
        except CheckpointError as error:
            refusals[policy.version] = error
            ledger.event("policy_refused", module=module, policy=policy.name, version=policy.version, error=str(error))
        else:
            return Started(engine, max(refusals, default=-1))
    if not refusals:
        raise UnusablePolicyError(
            f"no committed policy is left in {ledger.run_dir / 'policies'}",
            "restore the folders of policies from a copy",
        )
    newest = next(iter(refusals.values()))
    raise UnusablePolicyError(newest.what, newest.advice) from newest


async def start_engine(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
    """Start the engine of `module` (one of `Recipe.engine_modules`) with `policy`.

    Raises `CheckpointError` for a policy that fails its canary, `SetupError` for an unusable server, and `EngineError`
    if loading times out.
    """
    backend: Backend = build(recipe.engine)
    return await backend.start(recipe, policy, run_dir, module)
