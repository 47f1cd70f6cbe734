"""Embedded engine `transformers`, which uses the forward pass of `transformers`, for models that `torch` cannot run."""

from pathlib import Path
from typing import Any

from quartet.config import Recipe
from quartet.config.section import PositiveFloat, Section
from quartet.engine.backend.base import Backend
from quartet.engine.base import ServedEngine
from quartet.engine.loading import loaded
from quartet.errors import ConfigError
from quartet.types import Policy


class Transformers(Backend):
    """Embedded engine for causal language models of `transformers`, and for Qwen-VL models, which read pictures. It
    processes one request after another."""

    class Settings(Section):
        step_timeout_seconds: PositiveFloat = 600.0
        """Timeout for one forward pass, at most of a whole prompt. After the timeout the engine process ends and is
        restarted."""
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
        from quartet.engine.transformers_engine import open_transformers

        return await loaded(
            lambda: open_transformers(recipe, policy), timeout_seconds=self.settings.load_timeout_seconds
        )

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        super().check(settings, recipe)
        if recipe.runtime.kind == "synchronous":
            raise ConfigError(
                "runtime.kind = 'synchronous' runs the engine 'torch' only", "set runtime.kind = 'processes'"
            )
