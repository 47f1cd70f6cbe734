"""The environment protocol: what a family of tasks must offer to be acted in."""

from typing import Protocol

from quartet.types import Observation, StepResult, Task


class Env(Protocol):
    """One session of an environment; reused for many episodes, one at a time.

    Every method may raise `EnvError` (infrastructure: the rollout is retried elsewhere) or `RewardError` (the reward
    could not be computed). A malformed or impossible
    action is not an error: it is a `StepResult` whose observation carries `error`.
    """

    async def reset(self, task: Task) -> Observation:
        """Start an episode of `task`."""
        ...

    async def step(self, action: str) -> StepResult:
        """Apply one action given as text in the environment's grammar."""
        ...

    async def close(self) -> None:
        """Give everything back; safe to call twice."""
        ...


class EnvPool(Protocol):
    """Where a rollout takes a session from: in process, or an environment host over WebSocket."""

    async def acquire(self) -> Env:
        """A free session; waits until there is one. Raises `EnvError` when the host cannot be reached."""
        ...

    async def release(self, env: Env, *, healthy: bool) -> None:
        """Give a session back; an unhealthy one is closed and replaced."""
        ...

    async def close(self) -> None: ...
