"""Interfaces of environments: a session, a pool of sessions, and the part that a recipe names."""

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

from quartet import config
from quartet.env.session_pool import SessionPool
from quartet.part import Part
from quartet.types import Observation, StepResult, Task


class Env(Protocol):
    """One session of an environment, reused for many episodes, one at a time.

    Every method may raise `EnvError` (infrastructure: the rollout is retried elsewhere) or `RewardError` (the reward
    could not be computed). A malformed or impossible action is no error: it returns a `StepResult` whose observation
    has `error` set.
    """

    async def reset(self, task: Task) -> Observation:
        """Start an episode of `task`."""
        ...

    async def step(self, action: str) -> StepResult:
        """Apply one action given as text in the environment's grammar."""
        ...

    async def close(self) -> None:
        """Release all resources; safe to call twice."""
        ...


class EnvPool(Protocol):
    """Source of a rollout's sessions: in process, or an environment host over WebSocket."""

    async def acquire(self) -> Env:
        """Return a free session, waiting for one if necessary. Raise `EnvError` if the host cannot be reached."""
        ...

    async def release(self, env: Env, *, healthy: bool) -> None:
        """Release a session; an unhealthy one is closed and replaced."""
        ...

    async def close(self) -> None: ...


class Environment(Part):
    """Task families and their sessions. Most environments define only `families` and `session`."""

    observation_format: ClassVar[int] = 1
    """Observation format version. Bump on any change to the texts of goals or pages: older demonstrations are
    rejected."""
    grammar: ClassVar[str] = ""
    """Form of an action, for the alarm about responses without a valid one."""
    deterministic: ClassVar[bool] = False
    """True if the same actions in the same task always give the same observations: a forked rollout begins by replaying
    the actions of its parent."""
    needs_browser: ClassVar[bool] = False
    """True if a run needs Chromium and fonts."""
    first_settings: ClassVar[Mapping[str, Mapping[str, object]]] = MappingProxyType({})
    """Settings that `quartet init` adds to a first recipe, by section."""

    @abstractmethod
    def families(self) -> list[str]:
        """Return the names of all task families. Raise `ConfigError` if the settings match none."""

    def session(self) -> Env:
        """Make a session, for one rollout."""
        raise NotImplementedError(f"{type(self).__name__} defines neither session() nor pool()")

    def pool(self, env: config.Env) -> EnvPool:
        """Return the pool of a rollout's sessions: at most `env.sessions` at once, each newly made.

        Override it to reuse sessions that are expensive to make.
        """
        return SessionPool(self.session, env.sessions)

    def undemonstrated(self) -> set[str]:
        """Return the families that no demonstration may show; they are reported separately."""
        return set()

    def max_turns(self, family_name: str) -> int | None:
        """Return the turns that the hardest task of a family needs, with a margin; None if unknown."""
        return None
