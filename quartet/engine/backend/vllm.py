"""Engine `vllm`: a vLLM server, which Quartet starts or which is already running."""

from pathlib import Path
from typing import Any

from quartet.config import Recipe
from quartet.config.section import Positive, PositiveFloat, Section, ServerUrl
from quartet.engine.backend.base import Backend, check_key, refuse_replicas_of_one_server
from quartet.engine.base import ServedEngine
from quartet.errors import ConfigError
from quartet.types import Policy


class Vllm(Backend):
    """A vLLM server, used with token ids instead of text."""

    class Settings(Section):
        url: ServerUrl = ""
        """URL of a running server, started as in docs/engines.md. If empty, Quartet starts and supervises a server on
        this machine."""
        api_key_variable: str = ""
        """Environment variable that holds the key of the server at `url`; a key in the recipe would be stored in the
        run."""
        python: str = ""
        """Python interpreter of an environment with vLLM; if empty, the interpreter that runs Quartet."""
        tensor_parallel: Positive = 1
        """Number of GPUs that each started server spreads the weights over. On a Ray cluster each engine reserves as
        many, and its server sees no others."""
        devices: list[str] = []
        """GPUs of each engine's server on one machine, one entry per engine, for example `["0,1", "2,3"]`; the server
        gets its entry as CUDA_VISIBLE_DEVICES. On a Ray cluster leave this empty: Ray assigns GPUs."""
        arguments: list[str] = []
        """Additional arguments for each started server, for example `["--gpu-memory-utilization", "0.8"]`."""
        start_timeout_seconds: PositiveFloat = 900.0
        """Timeout for the start of the server that Quartet starts. After the timeout the server and the run end."""

    settings: Settings
    reads_pictures = True
    receives_tensors = True
    source = "https://github.com/vllm-project/vllm"

    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        from quartet.engine.vllm.engine import open_vllm

        devices = dict(zip(recipe.engine_modules, self.settings.devices, strict=False)).get(module, "")
        return await open_vllm(recipe, policy, run_dir / "logs" / f"{module}.vllm.stderr", devices)

    @classmethod
    def gpus(cls, settings: Any, recipe: Recipe) -> float:
        return 0 if settings.url else settings.tensor_parallel

    def check_use(self, *, trains: bool) -> None:
        check_key(self.settings.api_key_variable)

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        super().check(settings, recipe)
        refuse_replicas_of_one_server(settings.url, recipe)
        if settings.devices and recipe.runtime.kind == "ray":
            raise ConfigError(
                "engine.devices names GPUs of one machine, but Ray assigns GPUs on its nodes",
                "remove engine.devices; engine.tensor_parallel says how many GPUs an engine gets",
            )
        if settings.devices and len(settings.devices) != recipe.engine.replicas:
            raise ConfigError(
                f"engine.devices has {len(settings.devices)} entries for engine.replicas = {recipe.engine.replicas}",
                "write one entry for each engine",
            )
