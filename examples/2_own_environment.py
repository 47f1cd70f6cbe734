"""2. Your own environment: one class with `reset` and `step`, and one that names the task families.

    python examples/2_own_environment.py

A thermometer shows a number, and the policy states whether it is warm or cold. The script first plays one episode by
hand, then trains. `runtime.kind = "synchronous"` runs the four modules in turn in one process, which is the easiest to
debug. `docs/bring-your-own/environment.md` has the whole contract: errors, time limits, pictures, tools.
"""

import asyncio
import random
from pathlib import Path

from quartet.env.base import Environment
from quartet.recipe.file import parse_recipe
from quartet.runtime.run import run_recipe
from quartet.types import Observation, StepResult, Task

RUN = Path("runs/tutorial-2")
PAGE = "button warm [1]\nbutton cold [2]"


class Thermometer:
    """One session, used for one episode after the other."""

    async def reset(self, task: Task) -> Observation:
        degrees = random.Random(task.key).randrange(40)  # the same task shows the same page
        self._right = "click warm [1]" if degrees >= 20 else "click cold [2]"
        self._observation = Observation(goal=f"It is {degrees} degrees. Click warm or cold.", text=PAGE)
        return self._observation

    async def step(self, action: str) -> StepResult:
        success = action.strip() == self._right
        return StepResult(
            observation=self._observation, reward=float(success), terminated=True, info={"success": success}
        )

    async def close(self) -> None:
        """Release nothing: a session holds no resources."""


class Weather(Environment):
    """Environment with one task family, `thermometer`."""

    grammar = "`click LABEL [1]`"

    def families(self) -> list[str]:
        return ["thermometer"]

    def session(self) -> Thermometer:
        return Thermometer()


async def play() -> None:
    """Play one episode by hand; print what a policy would read, and the result of its action."""
    session = Thermometer()
    print(await session.reset(Task(env="weather", family="thermometer", seed=3)))
    print(await session.step("click cold [2]"))


def main() -> None:
    asyncio.run(play())
    recipe = parse_recipe(
        {
            "name": "tutorial-2",
            "model": {"path": "miniwob-start"},  # a policy of a million parameters that ships with Quartet
            "env": {"name": "2_own_environment:Weather", "sessions": 8, "screenshots": False},
            "rollout": {"max_turns": 1, "max_tokens": 8, "temperature": 1.5},
            "control": {"rollouts_per_group": 8},
            "train": {"groups_per_batch": 2, "max_train_steps": 6},
            "admission": {"max_lag": 0},
            "evaluation": {"episodes_per_family": 16},
            "runtime": {"kind": "synchronous"},
        },
        "examples/2_own_environment.py",
    )
    summary = run_recipe(recipe, RUN, resume=False, fresh=True, quiet=True)
    print(f"held-out success: {summary['success_before_sampled']:.0%} -> {summary['success_after_sampled']:.0%}")


if __name__ == "__main__":
    main()
