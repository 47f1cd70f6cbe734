"""Episodes of the environment's own experts: each family can be solved, and neither doing nothing nor a wrong solution
is rewarded."""

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from quartet.env.base import Environment, EnvPool, Expert
from quartet.errors import ConfigError, QuartetError
from quartet.types import Observation, Task

MAX_TURNS = 100
"""Maximum turns of an expert in an environment without a limit of its own."""

ROUNDING = 1e-9
"""Tolerance of rewards, which are sums of floats."""


class FamilyCheck(Struct, frozen=True, kw_only=True):
    """Result of one task."""

    family: str
    seed: int
    feasible: bool = True
    expert: float = 0.0
    """Reward of the expert; it should be at least 1."""
    idle: float = 0.0
    """Reward of an agent that declares the task done at once; it should not be above 0."""
    wrong: float = 0.0
    """Reward of the environment's wrong solution, if it has one; it should not be above 0."""
    error: str = ""
    """Last error that the expert read, or the failure of the environment."""

    @property
    def passed(self) -> bool:
        return self.expert >= 1.0 - ROUNDING and max(self.idle, self.wrong) <= ROUNDING

    @property
    def summary(self) -> str:
        return f"expert {self.expert:g}, idle {self.idle:g}, wrong {self.wrong:g}  {self.error}"


async def play_experts(environment: Environment, pool: EnvPool, tasks: Sequence[Task]) -> list[FamilyCheck]:
    """Run the expert, the wrong solution and the idle agent in each task, as many at once as the pool has sessions."""
    return list(await asyncio.gather(*(_check(environment, pool, task) for task in tasks)))


async def _check(environment: Environment, pool: EnvPool, task: Task) -> FamilyCheck:
    try:
        idle, feasible, _ = await _play(environment, pool, task, lambda _: "done")
        expert = environment.expert(task.family, task.seed)
        if expert is None:
            raise ConfigError(f"the family {task.family!r} has no expert", "define one")
        reward, _, error = await _play(environment, pool, task, expert)
        result = FamilyCheck(
            family=task.family, seed=task.seed, feasible=feasible, expert=reward, idle=idle, error=error
        )
        if wrong := environment.wrong_expert(task.family, task.seed):
            result = replace(result, wrong=(await _play(environment, pool, task, wrong))[0])
    except QuartetError as failure:
        result = FamilyCheck(family=task.family, seed=task.seed, error=str(failure))
    return result


async def _play(environment: Environment, pool: EnvPool, task: Task, policy: Expert) -> tuple[float, bool, str]:
    """Play one episode. Return its reward, whether the task is feasible, and the last error that the policy read."""
    session, healthy = await pool.acquire(), False
    try:
        observation: Observation = await session.reset(task)
        reward, feasible, error = 0.0, True, ""
        for _ in range(environment.max_turns(task.family) or MAX_TURNS):
            result = await session.step(policy(observation))
            observation, reward = result.observation, reward + result.reward
            error, feasible = observation.error or error, not result.info.get("infeasible", False)
            if result.terminated or result.truncated:
                break
        healthy = True
        return reward, feasible, error
    finally:
        await pool.release(session, healthy=healthy)
