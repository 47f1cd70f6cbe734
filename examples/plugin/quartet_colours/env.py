"""Pages of coloured buttons. The goal names the right one, and one response ends the episode."""

import random

from quartet.config.section import Positive, Section
from quartet.env.base import Environment
from quartet.types import Observation, StepResult, Task


class Page:
    def __init__(self, buttons: int) -> None:
        self._lines = [f"button {colour} [{n}]" for n, colour in enumerate(("red", "green", "blue")[:buttons], 1)]

    async def reset(self, task: Task) -> Observation:
        self._right = random.Random(task.key).choice(self._lines).removeprefix("button ")
        self._page = Observation(goal=f"Click {self._right}.", text="\n".join(self._lines))
        return self._page

    async def step(self, action: str) -> StepResult:
        success = action.strip() == f"click {self._right}"
        return StepResult(observation=self._page, reward=float(success), terminated=True, info={"success": success})

    async def close(self) -> None: ...


class Colours(Environment):
    """Coloured buttons, one of which the goal names."""

    class Knobs(Section):
        buttons: Positive = 3
        """Buttons of a page, at most three."""

    knobs: Knobs

    def families(self) -> list[str]:
        return ["colours"]

    def session(self) -> Page:
        return Page(self.knobs.buttons)
