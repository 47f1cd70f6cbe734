"""Episodes that a person plays in one session of an environment."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct, field

from quartet import config
from quartet.actions.taken import taken_action
from quartet.env import make_environment, make_pool, suite_families
from quartet.env.base import Env
from quartet.env.deadlines import Deadlines
from quartet.env.guarded import GuardedPool
from quartet.errors import ConfigError, QuartetError, nearest
from quartet.types import Observation, TakenAction, Task


class PlayedTurn(Struct, frozen=True, kw_only=True):
    """One response of the person, and what it did."""

    number: int
    response: str
    actions: Sequence[TakenAction]
    reward: float


class Episode(Struct, kw_only=True):
    """The episode being played."""

    number: int
    """Number of the episode on this server, from 1; 0 before the first one."""
    task: Task
    observation: Observation | None = None
    """Newest observation; None if the session failed before the first one."""
    turns: list[PlayedTurn] = field(default_factory=list)
    ended: str = ""
    """Reason for the end of the episode; empty while it continues."""
    info: dict[str, object] = field(default_factory=dict)

    @property
    def reward(self) -> float:
        return sum(turn.reward for turn in self.turns)


class Player:
    """One session of an environment. `episode` is the present episode."""

    def __init__(self, env: config.Env) -> None:
        """Raise `ConfigError` for an unknown environment or family, `SetupError` if the environment cannot run here."""
        self._env, self.environment, self.families = env, make_environment(env), suite_families(env)
        self._deadlines = Deadlines.of(env)
        self._pool = GuardedPool(make_pool(env))
        self._session: Env | None = None
        self._one_at_a_time = asyncio.Lock()
        self.episode = Episode(number=0, task=self._task(self.families[0], 0))

    @property
    def max_turns(self) -> int | None:
        """Number of turns that the present task needs at most, as the environment states it; None if it does not."""
        return self.environment.max_turns(self.episode.task.family)

    def require(self, family: str) -> None:
        """Raise `ConfigError` for an unknown family."""
        if family not in self.families:
            raise ConfigError(f"unknown task family {family!r} of {self._env.name!r}", nearest(family, self.families))

    async def begin(self, family: str, seed: int) -> None:
        """Begin an episode. A failure of the environment ends it at once, with the error.

        Raise `ConfigError` for an unknown family.
        """
        self.require(family)
        async with self._one_at_a_time:
            number = self.episode.number + 1
            self.episode = episode = Episode(number=number, task=self._task(family, seed))
            try:
                async with self._deadlines.bounded("start", "the start of a session"):
                    self._session = self._session or await self._pool.acquire()
                async with self._deadlines.bounded("reset", "the reset"):
                    episode.observation = await self._session.reset(episode.task)
            except QuartetError as error:
                await self._fail(error)

    async def act(self, number: int, turn: int, response: str) -> None:
        """Apply a response as a turn, counted from 1, of the episode with this number.

        A response for a turn or an episode that is over is ignored, so that none is applied twice, and none from a page
        that shows another task.
        """
        async with self._one_at_a_time:
            episode = self.episode
            present = (episode.number, len(episode.turns) + 1)
            if episode.ended or self._session is None or (number, turn) != present:
                return
            try:
                async with self._deadlines.bounded("step", "the step"):
                    result = await self._session.step(response)
            except QuartetError as error:
                await self._fail(error)
                return
            taken = result.actions or [taken_action(response, result.observation.error)]
            episode.turns.append(PlayedTurn(number=turn, response=response, actions=taken, reward=result.reward))
            episode.observation, episode.info = result.observation, result.info
            if result.terminated or result.truncated:
                episode.ended = "the task ended" if result.terminated else "the environment's own limit was reached"

    async def close(self) -> None:
        """Release the session and all that its environment has started."""
        await self._release(healthy=True)
        await self._pool.close()

    def _task(self, family: str, seed: int) -> Task:
        return Task(env=self._env.name, family=family, seed=seed)

    async def _fail(self, error: QuartetError) -> None:
        self.episode.ended = f"the environment failed: {error}"
        await self._release(healthy=False)

    async def _release(self, *, healthy: bool) -> None:
        session, self._session = self._session, None
        if session is not None:
            await self._pool.release(session, healthy=healthy)
