"""Agent loops by name. A loop turns observations into prompts and responses into actions, one rollout per coroutine."""

from collections.abc import Callable

from quartet.registry import lookup
from quartet.rollout.loop.append import AppendLoop
from quartet.rollout.loop.base import AgentLoop
from quartet.rollout.loop.latest import LatestLoop

LOOPS: dict[str, Callable[[], AgentLoop]] = {"append": AppendLoop, "latest": LatestLoop}


def make_loop(name: str) -> AgentLoop:
    """Raises `ConfigError` for an unknown name."""
    return lookup("agent loop", name, LOOPS)()
