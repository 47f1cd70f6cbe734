"""Any server with OpenAI's completion API and token ids, by URL."""

from pathlib import Path
from typing import Any, Literal

from quartet.config import Recipe
from quartet.config.section import Section, ServerUrl
from quartet.engine.backend.base import Backend, check_key, refuse_replicas_of_one_server
from quartet.engine.base import ServedEngine
from quartet.errors import ConfigError
from quartet.types import Policy


class OpenAI(Backend):
    """Any server with OpenAI's completion API and token ids, by URL."""

    class Settings(Section):
        url: ServerUrl = ""
        """Base URL of the server, without `/v1`."""
        model: str = ""
        """Name of the policy at the server; if empty, the first model that the server lists."""
        api_key_variable: str = ""
        """Environment variable that holds the server's key; a key in the recipe would be stored in the run."""
        reload: Literal["none", "update_weights_from_disk"] = "none"
        """Route by which the server loads new weights; `update_weights_from_disk` is SGLang's. A server without such a
        route can be used for evaluation only."""

    settings: Settings

    async def start(self, recipe: Recipe, policy: Policy, run_dir: Path, module: str) -> ServedEngine:
        from quartet.engine.openai.engine import open_openai
        from quartet.manager.evaluation import is_evaluation

        return await open_openai(recipe, policy, trains=not is_evaluation(run_dir))

    def check_use(self, *, trains: bool) -> None:
        check_key(self.settings.api_key_variable)
        if trains and self.settings.reload == "none":
            raise ConfigError(
                "training needs a server that takes new weights: engine.reload is 'none'",
                "set engine.reload=update_weights_from_disk where the server has that route (SGLang)",
            )

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        super().check(settings, recipe)
        refuse_replicas_of_one_server(settings.url, recipe)
        if not settings.url:
            raise ConfigError("engine.name = 'openai' needs engine.url", 'write engine.url = "http://HOST:PORT"')
