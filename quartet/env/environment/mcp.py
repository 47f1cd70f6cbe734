"""Rows of a data set as tasks that a policy solves with the tools of an MCP server."""

from typing import Any

from quartet import config
from quartet.access.variables import secret
from quartet.config import Recipe
from quartet.config.section import Positive
from quartet.env.base import Env, EnvPool
from quartet.env.dataset.session import DatasetSession
from quartet.env.deadlines import Deadlines
from quartet.env.earlier_turns import require_earlier_turns
from quartet.env.environment import dataset
from quartet.env.tools.mcp_server import EXTRA, McpServer
from quartet.env.tools.session import ToolSession
from quartet.errors import ConfigError

CALLS_SHARE = 0.8
"""Share of `env.step_timeout_seconds` for the calls of one response, so that a slow call is answered before the step's
limit, which is a failure of the environment."""


class Mcp(dataset.Dataset):
    """Tasks of a data set, solved with the tools of an MCP server; rewards score the final answer or ask the server."""

    class Settings(dataset.Dataset.Settings):
        command: list[str] = []
        """Command that starts the server, which is reached by its standard input and output. `python` is the
        interpreter that runs Quartet."""
        url: str = ""
        """Address of a running server (streamable HTTP), in place of `command`."""
        env_variables: list[str] = []
        """Names of environment variables that the process of `command` gets from the environment host, for example
        `GITHUB_TOKEN`. Without them it has only a few, such as `PATH` and `HOME`. A recipe names variables, never their
        values."""
        token_variable: str = ""
        """Environment variable whose value is sent to `url` as a bearer token; empty sends none."""
        reset_tool: str = ""
        """Tool that brings the server into the initial state of a row; it gets the columns that it takes, and the
        policy does not see it. Without it every episode has a new connection, and with `command` a new process."""
        reward_tool: str = ""
        """Tool that returns a number at the end of an episode, which is added to the reward. It gets the columns that
        it takes, and the policy does not see it."""
        show_reset: bool = False
        """True to show the result of `reset_tool` below the prompt, for a server whose reset returns what the policy
        sees first, such as the board of a game."""
        turn_limit: Positive = 8
        """Turn limit of a task. With `reward_tool`, an episode that reaches it without an answer ends with the reward
        of this tool alone. Without, evaluations apply the limit, and training with `control.horizon = "suite"`."""

    typed_actions = True
    extra = EXTRA
    grammar = '`call NAME {"argument": "value"}`, or the answer'
    source = "Anthropic 2024, Model Context Protocol"
    first_settings = {
        "env": {**dataset.Dataset.first_settings["env"], "command": ["python", "server.py"]},
        "rollout": {"loop": "append", "max_turns": 8, "max_tokens": 256},
    }

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self.judged_at_limit = bool(settings.reward_tool)

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        if bool(settings.command) == bool(settings.url):
            raise ConfigError("an MCP server needs env.command or env.url", "set one of them")
        if settings.show_reset and not settings.reset_tool:
            raise ConfigError("env.show_reset has no effect without env.reset_tool", "name the tool, or remove it")
        unread, needed = ("env_variables", "command") if settings.url else ("token_variable", "url")
        if getattr(settings, unread):
            raise ConfigError(f"env.{unread} is set, which needs env.{needed}", f"set env.{needed}, or leave it out")
        require_earlier_turns(recipe, "the results of earlier calls")
        super().check(settings, recipe)

    @classmethod
    def has_reward(cls, settings: Any) -> bool:
        return bool(settings.reward or settings.reward_tool)

    def modules(self) -> list[str]:
        return ["mcp"]

    def max_turns(self, family_name: str) -> int:
        settings: Any = self.settings  # its type is that of Dataset, which pyright lets no subclass narrow
        return settings.turn_limit

    def pool(self, env: config.Env) -> EnvPool:
        """Return the pool. Raise `SetupError` if an environment variable that the server needs is not set."""
        self._secrets()
        return super().pool(env)

    def around(self, env: config.Env, answers: DatasetSession) -> Env:
        settings: Any = self.settings
        limits = Deadlines.of(env)

        def connect() -> McpServer:
            return McpServer(settings.command, settings.url, max(limits.step, limits.reset), *self._secrets())

        return ToolSession(
            answers,
            self.row,
            connect,
            reset_tool=settings.reset_tool,
            reward_tool=settings.reward_tool,
            show_reset=settings.show_reset,
            turn_limit=settings.turn_limit,
            calls_seconds=CALLS_SHARE * limits.step,
            reward_seconds=limits.step,
        )

    def _secrets(self) -> tuple[dict[str, str], str]:
        """Return the environment variables of the server's process, and the token for its address."""
        settings: Any = self.settings
        variables = {name: secret("env.env_variables", name) for name in settings.env_variables}
        return variables, secret("env.token_variable", settings.token_variable)
