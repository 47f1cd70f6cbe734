"""Embedded engine. The model and torch are imported at its start."""

from pathlib import Path

from quartet.config import Recipe
from quartet.config.section import Positive, PositiveFloat, Section
from quartet.engine.backend.base import Backend
from quartet.engine.base import ServedEngine
from quartet.engine.loading import loaded
from quartet.types import Policy


class Torch(Backend):
    """Embedded engine for any causal language model of `transformers` with full attention."""

    class Settings(Section):
        kv_cache_megabytes: Positive = 4096
        """Memory limit for keys and values of running requests. A token takes 2 x layers x kv_heads x head_dim numbers.
        Each request has room for as many tokens as the longest, in steps of 256; requests that do not fit wait. During
        a resize the old buffers are in memory too."""
        step_timeout_seconds: PositiveFloat = 60.0
        """A step or weight swap that takes longer counts as hung: the process ends and is restarted. Keep it below
        `rollout.episode_timeout_seconds`, so that rollouts survive the restart."""
        load_timeout_seconds: PositiveFloat = 900.0
        """Timeout for reading and proving a policy; after it the process ends and is restarted."""

    settings: Settings
    embedded = True
    reports_entropies = True

    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        from quartet.engine.torch_engine import open_torch

        return await loaded(lambda: open_torch(recipe, policy), timeout_seconds=self.settings.load_timeout_seconds)
