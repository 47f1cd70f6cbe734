"""The embedded engine. The model and torch are imported when it starts."""

from pathlib import Path

from quartet.config import Recipe
from quartet.config.section import Positive, PositiveFloat, Section
from quartet.engine.backend.base import Backend
from quartet.engine.base import ServedEngine
from quartet.engine.loading import loaded
from quartet.types import Policy


class Torch(Backend):
    """Embedded: any causal language model of `transformers` with full attention."""

    class Knobs(Section):
        kv_cache_megabytes: Positive = 4096
        """Most memory for keys and values of the requests that are decoded. A token takes 2 x layers x kv_heads x
        head_dim numbers; each request has room for as many tokens as the longest, in steps of 256. Where not all fit,
        some wait. While the room grows, the old one is there too."""
        step_timeout_seconds: PositiveFloat = 60.0
        """A step, or an exchange of weights, that takes longer is a hang: the process ends and is started again. Keep
        it below `rollout.episode_timeout_seconds`, so that rollouts outlast that."""
        load_timeout_seconds: PositiveFloat = 900.0
        """Reading and proving a policy may take this long; then the process ends and is started again."""

    knobs: Knobs
    embedded = True
    reports_entropies = True

    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        from quartet.engine.torch_engine import open_torch

        return await loaded(lambda: open_torch(recipe, policy), timeout_seconds=self.knobs.load_timeout_seconds)
