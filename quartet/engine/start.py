"""Start of the engine that a recipe names, with a loaded and verified policy."""

from collections.abc import Collection
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

    Each newer policy, which failed its checks, is recorded in an event `policy_refused`. A policy that the disk budget
    deleted while it was loaded was not refused: newer ones took its place. Raises the errors of `start_engine`, and
    `UnusablePolicyError` with the newest policy's error if no policy passes.
    """
    refusals: dict[int, CheckpointError] = {}
    while (policy := _newest_untried(ledger, refusals)) is not None:
        try:
            engine = await start_engine(recipe, policy, ledger.run_dir, module)
        except CheckpointError as error:
            if not ledger.policies.is_loadable(policy.version):
                continue
            refusals[policy.version] = error
            ledger.event("policy_refused", module=module, policy=policy.name, version=policy.version, error=str(error))
        else:
            return Started(engine, max(refusals, default=-1))
    if not refusals:
        raise UnusablePolicyError(
            f"no committed policy is left in {ledger.run_dir / 'policies'}",
            "restore the folders of policies from a copy",
        )
    newest = refusals[max(refusals)]
    raise UnusablePolicyError(newest.what, newest.advice) from newest


def _newest_untried(ledger: Ledger, refusals: Collection[int]) -> Policy | None:
    """Return the newest policy that may be served and was not refused; a load takes minutes, so it is read anew."""
    return next((policy for policy in ledger.policies.loadable() if policy.version not in refusals), None)


async def start_engine(recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
    """Start the engine of `module` (one of `Recipe.engine_modules`) with `policy`.

    Raises `CheckpointError` for a policy that fails its canary, `SetupError` for an unusable server, and `EngineError`
    if loading times out.
    """
    backend: Backend = build(recipe.engine)
    return await backend.start(recipe, policy, run_dir, module)
