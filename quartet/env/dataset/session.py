"""Session in which a policy answers one row of a data set, and the pool that owns the rewards' processes."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence

from quartet.env.all_of import all_of
from quartet.env.base import Env
from quartet.env.dataset.answers import extract
from quartet.env.dataset.prompt import Prompts
from quartet.env.dataset.rows import Row
from quartet.env.rewards.base import Case
from quartet.env.scoring.scorer import Scorer
from quartet.env.session_pool import SessionPool
from quartet.errors import RewardError
from quartet.types import Observation, StepResult, TakenAction, Task, Text

TOLERANCE = 1e-9
"""Rounding error of a sum of weighted rewards that still is a success."""


class DatasetSession:
    """One session. Each response is scored and ends the episode, unless the row may be tried again."""

    def __init__(
        self,
        row_of: Callable[[Task], Row],
        prompts: Prompts,
        scorers: Sequence[Scorer],
        *,
        answer: str,
        success_reward: float,
        tries: int,
        feedback: str,
    ) -> None:
        self._row_of, self._prompts, self._scorers = row_of, prompts, scorers
        self._answer, self._success_reward = answer, success_reward
        self._tries, self._feedback = tries, feedback

    async def reset(self, task: Task) -> Observation:
        """Show the row of the task."""
        self._task, self._row = task, self._row_of(task)
        self._prompt, self._tried = self._prompts.messages(self._row), 0
        return Observation(goal="", text="", messages=self._prompt)

    async def step(self, action: str) -> StepResult:
        """Score a response. Raise `RewardError` if one of the rewards cannot be computed."""
        self._tried += 1
        answer = extract(self._answer, action)
        case = Case(row=self._row, prompt=self._prompt, response=action, answer=answer)
        components = merged(await all_of(*(scorer.score(case) for scorer in self._scorers)))
        reward, success = self.judged(components)
        ended = success or self._tried >= self._tries
        return StepResult(
            observation=Observation(goal="", text="" if ended else self._feedback),
            reward=reward if ended else 0.0,
            rewards=components if ended else {},
            terminated=ended,
            info={"success": success} if ended else {},
            actions=[TakenAction(action=Text(text=action), canonical=answer)],
        )

    async def close(self) -> None:
        """Release nothing: the pool owns the processes."""

    def judged(self, components: Mapping[str, float]) -> tuple[float, bool]:
        """Return the reward, which is the sum of its components, and whether it is a success."""
        reward = math.fsum(components.values())
        return reward, reward >= self._success_reward - TOLERANCE


def merged(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the components of several rewards. Raise `RewardError` if two have a component of the same name."""
    names = [name for part in parts for name in part]
    if twice := {name for name in names if names.count(name) > 1}:
        raise RewardError(f"two rewards have a component {min(twice)!r}", "give the components of one other names")
    return {name: value for part in parts for name, value in part.items()}


class DatasetPool(SessionPool):
    """Pool of sessions that share the processes of the rewards."""

    def __init__(self, make_session: Callable[[], Env], sessions: int, scorers: Sequence[Scorer]) -> None:
        super().__init__(make_session, sessions)
        self._scorers = scorers

    async def acquire(self) -> Env:
        """Return a session. The first one starts the rewards' processes; raise the errors of `RewardProcess.start`."""
        await asyncio.gather(*(scorer.start() for scorer in self._scorers))
        return await super().acquire()

    async def close(self) -> None:
        """Kill the rewards' processes."""
        await asyncio.gather(*(scorer.close() for scorer in self._scorers))
