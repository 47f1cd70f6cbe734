"""The interfaces of environments: a session, where sessions come from, and the part that a recipe names."""

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

from quartet import config
from quartet.env.session_pool import SessionPool
from quartet.part import Part
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


class Environment(Part):
    """Task families and the sessions to act in. `families` and `session` are all that most environments define."""

    observation_format: ClassVar[int] = 1
    """Raised with every change of the texts of goals and pages: older demonstrations are refused then."""
    grammar: ClassVar[str] = ""
    """What an action looks like, for the alarm about responses without a valid one."""
    deterministic: ClassVar[bool] = False
    """Whether the same actions in the same task are always answered with the same observations: forked rollouts begin
    by repeating those of their parent."""
    needs_browser: ClassVar[bool] = False
    """Whether a run needs Chromium and fonts."""
    first_settings: ClassVar[Mapping[str, Mapping[str, object]]] = MappingProxyType({})
    """What `quartet init` sets in a first recipe besides its defaults, by section."""

    @abstractmethod
    def families(self) -> list[str]:
        """Return the names of all task families. Raises `ConfigError` when the settings name none."""

    def session(self) -> Env:
        """Make a session, for one rollout."""
        raise NotImplementedError(f"{type(self).__name__} defines neither session() nor pool()")

    def pool(self, env: config.Env) -> EnvPool:
        """Return where rollouts take sessions from: at most `env.sessions` at once, each made anew.

        An environment whose sessions are expensive to make keeps them in a pool of its own.
        """
        return SessionPool(self.session, env.sessions)

    def undemonstrated(self) -> set[str]:
        """Return the families that no demonstration may show; they are reported apart."""
        return set()

    def max_turns(self, family_name: str) -> int | None:
        """Return how many turns the hardest task of a family needs, and a few to spare; None where that is unknown."""
        return None
