"""Environment session that stores its state at forks, or begins in such a state."""

from collections import deque

from msgspec.structs import replace

from quartet.env.base import Env, restorable
from quartet.errors import DivergedError, EnvFaultError
from quartet.types import EpisodeState, Move, Observation, StepResult, Task


class RecordedEnv:
    """Session that records its responses beside the state, so that agent loops need no code for forks.

    The loop of a child begins with a reset, as every loop does, and repeats its parent's actions. It receives the
    recorded responses. With the last of them the session is restored, and returns the observation of the restored
    environment.
    """

    def __init__(self, env: Env, parent: EpisodeState | None = None) -> None:
        self._env, self._parent = restorable(env), parent
        self._ahead = deque(parent.moves if parent else ())
        self._moves: list[Move] = []

    async def reset(self, task: Task) -> Observation:
        self._task, self._moves = task, []
        self._first = await self._recorded(self._parent.first) if self._parent else await self._env.reset(task)
        return self._first

    async def step(self, action: str) -> StepResult:
        """Apply an action. Raises `DivergedError` if a child deviates from its parent or the state cannot be
        restored."""
        if self._ahead:
            known = self._ahead.popleft()
            if known.action != action:
                raise DivergedError(f"the child's action is {action!r:.50}, its parent's was {known.action!r:.50}")
            result = replace(known.result, observation=await self._recorded(known.result.observation))
        else:
            result = await self._env.step(action)
        self._moves.append(Move(action, result))
        return result

    async def state(self) -> EpisodeState:
        """Return the stored state of the episode. Raises the environment's errors."""
        return EpisodeState(snapshot=await self._env.snapshot(), first=self._first, moves=list(self._moves))

    async def close(self) -> None:
        await self._env.close()

    async def _recorded(self, known: Observation) -> Observation:
        """Return the parent's observation: the recorded one, or the restored session's after the last recorded
        response."""
        if self._ahead or self._parent is None:
            return known
        state, self._parent = self._parent, None
        try:
            seen = await self._env.restore(self._task, state.snapshot)
        except EnvFaultError as error:
            raise DivergedError(f"the state of its parent cannot be restored: {error.what}") from error
        return replace(seen, error=known.error)
