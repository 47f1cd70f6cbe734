"""The environment under check: its sessions, served by a host as in a run, and the places of its code."""

import inspect
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from quartet import config
from quartet.env import make_environment, make_pool, suite_families
from quartet.env.base import Env, Environment
from quartet.env.client import RemoteEnv, RemoteEnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.extra import require_modules
from quartet.env.guarded import GuardedPool
from quartet.env.host import EnvHost, try_out
from quartet.env.session_pool import SessionPool
from quartet.types import Action, Observation, StepResult, Task

MAX_TURNS = 20
"""Maximum turns of an episode without an expert, in an environment without a limit of its own."""
MAX_FAMILIES = 3
"""Maximum number of families that the checks sample; experts are played in all families."""
TOKEN = "check"  # the host listens on this machine only, while the check runs

Response = str | list[Action]
"""Text of a response, or typed actions."""
Agent = Callable[[Observation], Response]


class Played(Struct):
    """Episode of an agent."""

    seen: list[Observation] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)

    @property
    def reward(self) -> float:
        """Sum of the rewards of all steps."""
        return sum(result.reward for result in self.results)

    @property
    def ended(self) -> bool:
        """True if the environment ended the episode."""
        return bool(self.results) and (self.results[-1].terminated or self.results[-1].truncated)


class Subject:
    """Environment under check; use it as a context manager."""

    def __init__(self, env: config.Env, seeds: Sequence[int]) -> None:
        """Raise `SetupError` if a package of the environment is missing."""
        self.env, self.seeds = env, seeds
        self.environment: Environment = make_environment(env)
        require_modules(self.environment.modules(), self.environment.extra)  # once, and not in every check
        self.families = suite_families(env)
        self.makes_sessions = type(self.environment).session is not Environment.session
        """True if `session()` makes sessions; False if the environment has a pool of its own."""
        self.ships = type(self.environment).__module__.startswith("quartet.")
        """True if the environment is one of Quartet's own."""
        self.example: Env
        """A closed session, if `session()` makes them."""

    async def __aenter__(self) -> Self:
        env, limits = self.env, Deadlines.of(self.env)
        if self.makes_sessions:
            await try_out(GuardedPool(SessionPool(self._first, 1)), limits)
        self._host = EnvHost(
            make_pool(env),
            name=env.name,
            capacity=env.sessions,
            token=TOKEN,
            deadlines=limits,
        )
        await self._host.start()
        self.pool = RemoteEnvPool(
            lambda: [self._host.url],
            env.sessions,
            token=TOKEN,
            request_timeout_seconds=limits.step,
            reset_timeout_seconds=limits.opening,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()
        await self._host.stop()

    @property
    def sampled_families(self) -> list[str]:
        """At most `MAX_FAMILIES` families, the first and the last among them."""
        last = len(self.families) - 1
        places = {round(last * index / (MAX_FAMILIES - 1)) for index in range(MAX_FAMILIES)}
        return [self.families[place] for place in sorted(places)]

    def task(self, family: str, seed: int) -> Task:
        """Return a task of the environment."""
        return Task(env=self.env.name, family=family, seed=seed)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[RemoteEnv]:
        """Give a session of its own connection, which ends with the block."""
        session = await self.pool.acquire()
        assert isinstance(session, RemoteEnv)
        try:
            yield session
        finally:
            await self.pool.release(session, healthy=False)

    @asynccontextmanager
    async def hurried_session(self) -> AsyncIterator[RemoteEnv]:
        """Give a session like `session`, in which every step that has to wait exceeds its deadline."""
        limits = self._host.deadlines
        self._host.deadlines = replace(limits, step=0.0)
        try:
            async with self.session() as session:
                yield session
        finally:
            self._host.deadlines = limits

    async def play(self, session: RemoteEnv, task: Task, agent: Agent, max_turns: int | None = None) -> Played:
        """Play an episode until it ends, at most `max_turns` turns (by default the limit of the family)."""
        played = Played(seen=[await session.reset(task)])
        for _ in range(max_turns or self.environment.max_turns(task.family) or MAX_TURNS):
            response = agent(played.seen[-1])
            result = await (session.step(response) if isinstance(response, str) else session.act(response))
            played.responses.append(response)
            played.results.append(result)
            played.seen.append(result.observation)
            if played.ended:
                break
        return played

    def place(self, method: str) -> str:
        """Return file and line of a method of the session, or of the environment's class if it has its own pool."""
        if not self.makes_sessions:
            return _place(type(self.environment), type(self.environment).__name__)
        kind: type[Env] = type(self.example)
        return _place(getattr(kind, method, kind), f"{kind.__name__}.{method}")

    def _first(self) -> Env:
        """Make the session whose members the checks read."""
        self.example = self.environment.session()
        return self.example


def _place(code: object, name: str) -> str:
    """Return file and line of a class or function, for example `doors.py:24, in Doors.reset`; empty if unknown."""
    try:
        file, (_, line) = inspect.getsourcefile(code), inspect.getsourcelines(code)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""
    return f"{os.path.relpath(file or '?')}:{line}, in {name}"
