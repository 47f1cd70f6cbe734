"""vLLM, as a server that Quartet starts or that is up already."""

from pathlib import Path
from typing import Any

from quartet.config import Recipe
from quartet.config.section import PositiveFloat, Section, ServerUrl
from quartet.engine.backend.base import Backend, check_key, refuse_replicas_of_one_server
from quartet.engine.base import ServedEngine
from quartet.types import Policy


class Vllm(Backend):
    """A vLLM server, token ids in and out."""

    class Knobs(Section):
        url: ServerUrl = ""
        """A server that is up already, started as docs/engines.md says; empty starts one on this machine and watches
        it."""
        api_key_variable: str = ""
        """Environment variable that holds the key of the server at `url`; the key itself would be written into the
        run."""
        python: str = ""
        """Python interpreter of an environment that has vLLM; empty is the one that runs Quartet."""
        arguments: list[str] = []
        """More arguments for the server that is started, for example `["--tensor-parallel-size", "2"]`."""
        start_timeout_seconds: PositiveFloat = 900.0
        """A server that does not answer by then is ended, and the run with it."""

    knobs: Knobs
    source = "https://github.com/vllm-project/vllm"

    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        from quartet.engine.vllm.engine import open_vllm

        return await open_vllm(recipe, policy, run_dir / "logs" / f"{module}.vllm.stderr")

    def check_use(self, *, trains: bool) -> None:
        check_key(self.knobs.api_key_variable)

    @classmethod
    def check(cls, knobs: Any, recipe: Recipe) -> None:
        super().check(knobs, recipe)
        refuse_replicas_of_one_server(knobs.url, recipe)
