"""Environment session that stores its state at forks, or begins in such a state."""

import asyncio
from collections import deque

from msgspec.structs import replace

from quartet.env.base import Env, restorable
from quartet.errors import DivergedError, EnvFaultError
from quartet.types import EpisodeState, Move, Observation, StepResult, Task


class RecordedEnv:
    """Session that records the results of all resets and steps, so that agent loops need no code for forks.

    The loop of a child begins with a reset, as every loop does, and repeats its parent's actions and resets. The
    session returns the parent's recorded results. At the last recorded result it restores the parent's state in the
    environment, and returns the observation of the restored environment.
    """

    def __init__(self, env: Env, parent: EpisodeState | None = None) -> None:
        self._env, self._parent = restorable(env), parent
        self._ahead = deque(parent.moves if parent else ())
        self._moves: list[Move] = []
        self._lock = asyncio.Lock()
        """Lock that allows one request at a time. A loop may act while a concurrent call of the same loop stores the
        state."""

    async def reset(self, task: Task) -> Observation:
        self._task = task
        return (await self._answer(None)).observation

    async def step(self, action: str) -> StepResult:
        """Apply an action. Raises `DivergedError` if a child deviates from its parent or the state cannot be
        restored."""
        return await self._answer(action)

    async def state(self) -> EpisodeState:
        """Return the stored state of the episode. Raises the environment's errors."""
        async with self._lock:
            return EpisodeState(snapshot=await self._env.snapshot(), moves=list(self._moves))

    async def close(self) -> None:
        await self._env.close()

    async def _answer(self, action: str | None) -> StepResult:
        async with self._lock:
            result = await self._recorded(action) if self._ahead else await self._live(action)
            self._moves.append(Move(action, result))
            return result

    async def _live(self, action: str | None) -> StepResult:
        if action is not None:
            return await self._env.step(action)
        return StepResult(observation=await self._env.reset(self._task), reward=0.0, terminated=False)

    async def _recorded(self, action: str | None) -> StepResult:
        """Return the parent's recorded result; the last result has the observation of the restored session."""
        known = self._ahead.popleft()
        if known.action != action:
            raise DivergedError(f"the child requested {_move(action)} where its parent requested {_move(known.action)}")
        if self._ahead or self._parent is None:
            return known.result
        try:
            seen = await self._env.restore(self._task, self._parent.snapshot)
        except EnvFaultError as error:
            raise DivergedError(f"the parent's state cannot be restored: {error.what}") from error
        known_seen = known.result.observation
        return replace(known.result, observation=replace(seen, error=known_seen.error, prepared=known_seen.prepared))


def _move(action: str | None) -> str:
    return "a reset" if action is None else f"the action {action!r:.50}"
