"""Interface of engine backends: start an engine that serves a policy."""

import os
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from quartet.config import Recipe
from quartet.engine.base import ServedEngine
from quartet.errors import ConfigError
from quartet.part import Part
from quartet.types import Policy


class Backend(Part):
    """Inference engine that a recipe can choose."""

    embedded: ClassVar[bool] = False
    """True if the model runs in Quartet's own process, not in a separate server. `rollout.stop_strings`, several
    policies and `runtime.kind = "synchronous"` need an embedded engine."""
    reports_entropies: ClassVar[bool] = False
    """True if the engine reports, for each sampled token, the entropy of the whole softmax at temperature 1."""

    reads_pictures: ClassVar[bool] = False
    """True if the engine shows the pictures of a prompt to the policy."""
    loads_adapters: ClassVar[bool] = False
    """True if the engine loads a policy that is published as an adapter (`lora.publish`)."""

    receives_tensors: ClassVar[bool] = False
    """True if the engine can receive weights from the trainer's memory (`publisher = "broadcast"`)."""

    @abstractmethod
    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        """Return the engine of `module` (one of `Recipe.engine_modules`) after loading `policy` and verifying it.

        Raises `CheckpointError` for a policy that fails its canary, `SetupError` for an unusable server, and
        `EngineError` if loading times out.
        """

    @classmethod
    def gpus(cls, settings: Any, recipe: Recipe) -> float:
        """Return the number of GPUs that one engine needs, unless the recipe states it (`placement.engine.gpus`)."""
        return 1 if recipe.engine.device.startswith("cuda") else 0

    def check_use(self, *, trains: bool) -> None:
        """Raise `ConfigError` if the engine cannot be used with these settings or, with `trains`, not for training."""

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        if cls.embedded:
            return
        if recipe.engine.device != "cpu":
            raise ConfigError(
                f"engine.device has no effect on the engine {recipe.engine.name!r}: a server chooses its device itself",
                "remove engine.device",
            )
        if len(recipe.policy_sources) > 1:
            raise ConfigError(
                f"{len(recipe.policy_sources)} policies need an embedded engine, since a server serves one policy",
                "set engine.name = 'torch' or 'transformers', or leave [policies] out",
            )
        if recipe.rollout.stop_strings:
            raise ConfigError(
                "rollout.stop_strings needs an embedded engine, since servers apply them to text, not to token ids",
                "set engine.name = 'torch' or 'transformers', or leave rollout.stop_strings out",
            )
        if recipe.runtime.kind == "synchronous":
            raise ConfigError(
                "runtime.kind = 'synchronous' runs the engine 'torch' only: it needs the model in its process",
                "set runtime.kind = 'processes'",
            )


def check_key(variable: str) -> None:
    """Raise `ConfigError` if the environment variable that holds a server's key is not set."""
    if variable and variable not in os.environ:
        raise ConfigError(f"engine.api_key_variable: {variable} is not set", f"export {variable}=…")


def refuse_replicas_of_one_server(url: str, recipe: Recipe) -> None:
    """Raise `ConfigError` if several engines would share one URL."""
    if url and recipe.engine.replicas > 1:
        raise ConfigError(
            "engine.replicas above 1 needs engines that Quartet starts, but a URL names one server",
            "set engine.replicas = 1",
        )
