"""Embedded engine `torch`. Torch and the model's code are imported when it starts."""

from pathlib import Path

from quartet.config import Recipe
from quartet.config.section import Positive, PositiveFloat, Section
from quartet.engine.backend.base import Backend
from quartet.engine.base import ServedEngine
from quartet.engine.loading import loaded
from quartet.types import Policy


class Torch(Backend):
    """Embedded engine for any causal language model of `transformers` with full attention, and for Qwen-VL models."""

    class Settings(Section):
        kv_cache_megabytes: Positive = 4096
        """Memory limit, in MiB, for keys and values of running requests. A token takes 2 x layers x kv_heads x head_dim
        elements. All running requests get buffers of the same length: that of the longest one, rounded up to a multiple
        of 256 tokens. Requests that do not fit wait. During a resize the old buffers are in memory too."""
        step_timeout_seconds: PositiveFloat = 60.0
        """Timeout for a decode step or a weight swap. After the timeout the engine process ends and is restarted. Keep
        it below `rollout.episode_timeout_seconds`, so that rollouts survive the restart."""
        load_timeout_seconds: PositiveFloat = 900.0
        """Timeout for loading a policy and checking its weights against its canary. After the timeout the engine
        process ends and is restarted."""

    settings: Settings
    embedded = True
    reports_entropies = True
    loads_adapters = True
    reads_pictures = True
    receives_tensors = True

    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        from quartet.engine.torch_engine import open_torch

        return await loaded(lambda: open_torch(recipe, policy), timeout_seconds=self.settings.load_timeout_seconds)
