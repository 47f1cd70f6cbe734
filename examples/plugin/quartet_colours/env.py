"""Pages of coloured buttons. The goal names a thing of the right colour, and one response ends the episode."""

import random

from quartet.config.section import Positive, Section
from quartet.env.base import Environment
from quartet.types import Observation, StepResult, Task


class Page:
    def __init__(self, buttons: int) -> None:
        self._things = dict([("red [1]", "fire"), ("green [2]", "grass"), ("blue [3]", "the sky")][:buttons])

    async def reset(self, task: Task) -> Observation:
        self._right, thing = random.Random(task.key).choice(list(self._things.items()))
        text = "\n".join(f"button {label}" for label in self._things)
        self._page = Observation(goal=f"Click the colour of {thing}.", text=text)
        return self._page

    async def step(self, action: str) -> StepResult:
        success = action.strip() == f"click {self._right}"
        return StepResult(observation=self._page, reward=float(success), terminated=True, info={"success": success})

    async def close(self) -> None: ...


class Colours(Environment):
    """Coloured buttons, one of which has the colour of the thing that the goal names."""

    class Knobs(Section):
        buttons: Positive = 3
        """Buttons of a page, at most three."""

    knobs: Knobs

    def families(self) -> list[str]:
        return ["colours"]

    def session(self) -> Page:
        return Page(self.knobs.buttons)
