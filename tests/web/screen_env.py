"""An environment with a screen: a click on its right half is a success, and everything else is listed."""

import asyncio

from quartet.actions.grammar import ActionError, parse_action
from quartet.actions.taken import taken
from quartet.config import Env
from quartet.env.base import Environment
from quartet.errors import EnvError
from quartet.recipe.file import parse_recipe
from quartet.types import Observation, Picture, Pointer, StepResult, Task, Wait
from quartet.types.frame import Point
from tests.web.pictured import WIDTH, screen


class ScreenEnv:
    def __init__(self) -> None:
        self._steps = 0

    async def reset(self, task: Task) -> Observation:
        if task.seed == 13:
            raise EnvError("no display is left")
        self._task, self._steps = task, 0
        return self._seen()

    async def step(self, action: str) -> StepResult:
        self._steps += 1
        try:
            parsed = parse_action(action)
        except ActionError as error:
            return StepResult(observation=self._seen(str(error)), reward=0.0, terminated=False)
        match parsed:
            case Wait(seconds=seconds):
                await asyncio.sleep(seconds)
            case Pointer(gesture="click", places=[Point(x, y)]):
                solved = x >= WIDTH / 2
                record = [taken(parsed, points=[(x, y)])]
                return StepResult(
                    observation=self._seen(), reward=float(solved), terminated=solved, actions=record, info={"x": x}
                )
        return StepResult(observation=self._seen(), reward=0.0, terminated=False, actions=[taken(parsed)])

    async def close(self) -> None: ...

    def _seen(self, error: str = "") -> Observation:
        pictures = [Picture(data=screen(f"seed {self._task.seed}, step {self._steps}"))]
        return Observation(goal="Click the right half.", text="button next [1]", error=error, pictures=pictures)


class Screens(Environment):
    """A screen whose right half is the goal."""

    grammar = "`click (X,Y)` or `done`"

    def families(self) -> list[str]:
        return ["halves", "others"]

    def session(self) -> ScreenEnv:
        return ScreenEnv()


def env_section(name: str, **settings: object) -> Env:
    """The section of a recipe for an environment that a person plays."""
    env = {"name": name, "sessions": 1, **settings}
    return parse_recipe({"name": "play", "model": {"path": "."}, "env": env}, "test").env
