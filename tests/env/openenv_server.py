"""Servers of OpenEnv, made with its package: guess a number by text, count by JSON, or sell with tools."""

import random
import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: str


class Change(Action):
    by: int
    reason: str | None = None


class Seen(Observation):
    text: str = ""
    hint: str | None = None


class Guessing(Environment):
    """Guess a number from 0 to 9, below the limit of the reset."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, limit=10, **_):
        self._state, self._hidden = State(episode_id=episode_id, step_count=0), random.Random(seed).randrange(limit)
        return Seen(text=f"Guess a number below {limit}.")

    def step(self, action, timeout_s=None, **_):
        self._state.step_count += 1
        if action.number == "crash":
            raise RuntimeError("the server's own fault")
        if not action.number.strip().isdigit():
            return Seen(text="no number", reward=None)
        right = int(action.number) == self._hidden
        reward = None if action.number == "99" else float(right)
        return Seen(text="right" if right else "wrong", done=right or action.number == "99", reward=reward)

    @property
    def state(self):
        return self._state


class Counting(Guessing):
    """Bring the count to 3."""

    def reset(self, seed=None, episode_id=None, **_):
        self._state, self._count = State(episode_id=episode_id, step_count=0), 0
        return Seen(text="count: 0", hint="go to 3")

    def step(self, action, timeout_s=None, **_):
        self._count += action.by
        return Seen(text=f"count: {self._count}", done=self._count >= 3, reward=float(self._count == 3))


class Shop(MCPEnvironment):
    """Sell all three apples."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        server, self._left = FastMCP("shop"), 3

        @server.tool
        def sell(count: int) -> str:
            """Sell apples."""
            if count > self._left:
                raise ValueError(f"only {self._left} apples")
            self._left -= count
            return f"{self._left} left"

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **_):
        self._left, self._state = 3, State(episode_id=episode_id, step_count=0)
        return Seen(text="Sell all three apples.")

    def step(self, action, timeout_s=None, **rest):
        return self._rewarded(super().step(action, timeout_s=timeout_s, **rest))

    async def step_async(self, action, timeout_s=None, **rest):
        return self._rewarded(await super().step_async(action, timeout_s=timeout_s, **rest))

    def _rewarded(self, observation):
        observation.done, observation.reward = self._left == 0, float(self._left == 0)
        return observation

    def _step_impl(self, action, timeout_s=None, **_):
        return Seen(text="call a tool")

    @property
    def state(self):
        return self._state


SERVED = {
    "guess": (Guessing, Guess, Seen),
    "count": (Counting, Change, Seen),
    "shop": (Shop, CallToolAction, CallToolObservation),
}

if __name__ == "__main__":
    kind, port = sys.argv[1:]
    app = create_fastapi_app(*SERVED[kind], max_concurrent_envs=8)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
