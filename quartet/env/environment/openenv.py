"""Environments of any OpenEnv server, driven with OpenEnv's session protocol."""

from typing import Any

from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment
from quartet.env.openenv.server import OpenEnvServer
from quartet.env.openenv.session import OpenEnvSession


class OpenEnv(Environment):
    """Environments of a running server of OpenEnv; each session is a connection."""

    class Settings(Section):
        url: str
        """Address of the server, for example `http://127.0.0.1:8000`."""
        tasks: dict[str, dict[str, Any]] = {"episodes": {}}
        """Task families, each with the fields that its resets have besides `seed` and `episode_id`."""
        shown: list[str] = []
        """Fields of the observation that the policy reads; by default all."""
        action: str = ""
        """Field of the action that gets the whole response. By default the only field of the server's actions, if it is
        a text; actions with several fields are written as a JSON object."""
        token_variable: str = ""
        """Environment variable whose value is sent as a bearer token; empty sends none."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`."""

    settings: Settings
    typed_actions = True
    grammar = 'the text or the JSON object of an action, or `call NAME {"argument": "value"}`'
    source = "Meta 2025, OpenEnv"
    first_settings = {
        "env": {"url": "http://127.0.0.1:8000", "screenshots": False},
        "rollout": {"loop": "append", "max_turns": 8, "max_tokens": 64},
    }

    def families(self) -> list[str]:
        return list(self.settings.tasks)

    def session(self) -> Env:
        settings = self.settings
        server = OpenEnvServer(settings.url, settings.token_variable)
        return OpenEnvSession(server, settings.tasks, shown=settings.shown, text_field=settings.action)

    def max_turns(self, family_name: str) -> int | None:
        return self.settings.turn_limit
