"""Pages of buttons in shades of colours. The goal names the right one, and one response ends the episode."""

import random

from quartet.config.section import Positive, Section
from quartet.env.base import Environment
from quartet.types import Observation, StepResult, Task


class Page:
    def __init__(self, buttons: int) -> None:
        shades = [f"{shade} {colour}" for colour in ("red", "green", "blue") for shade in ("dark", "light")]
        self._labels = {shade: f"{shade} [{number}]" for number, shade in enumerate(shades[:buttons], 1)}

    async def reset(self, task: Task) -> Observation:
        shade, self._right = random.Random(task.key).choice(list(self._labels.items()))
        self._page = Observation(goal=f"Click {shade}.", text="\n".join(f"button {it}" for it in self._labels.values()))
        return self._page

    async def step(self, action: str) -> StepResult:
        success = action.strip() == f"click {self._right}"
        return StepResult(observation=self._page, reward=float(success), terminated=True, info={"success": success})

    async def close(self) -> None: ...


class Colours(Environment):
    """Environment of pages with buttons in shades of colours; the goal names one of them."""

    class Settings(Section):
        buttons: Positive = 6
        """Number of buttons of a page, at most 6."""

    settings: Settings

    def families(self) -> list[str]:
        return ["colours"]

    def session(self) -> Page:
        return Page(self.settings.buttons)
