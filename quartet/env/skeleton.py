"""Skeleton of an environment: the files that `quartet env new` writes."""

ENVIRONMENT = '''"""Environment `NAME`: press the button that the goal names."""

from quartet.env.base import Env, Environment
from quartet.types import Observation, StepResult, Task

ACTIONS = ["click red [1]", "click blue [2]"]


class Session(Env):
    async def reset(self, task: Task) -> Observation:
        self.right = ACTIONS[task.seed % 2]  # the same task shows the same goal
        return self.observe()

    async def step(self, action: str) -> StepResult:
        error = "" if action in ACTIONS else f"write {' or '.join(ACTIONS)}"
        return StepResult(observation=self.observe(error), reward=float(action == self.right), terminated=not error)

    def observe(self, error: str = "") -> Observation:
        return Observation(goal=f"Now {self.right[:-4]}.", text="button red [1]\\nbutton blue [2]", error=error)


class CLASS(Environment):
    """Two buttons, one of which the goal names."""

    def families(self) -> list[str]:
        return ["buttons"]

    def session(self) -> Session:
        return Session()
'''
TEST = '''"""The environment `NAME` passes all checks of `quartet env check`."""

import asyncio

from NAME import Session

from quartet import config
from quartet.env.check.run import check_environment
from quartet.types import Task


def test_the_right_button_is_rewarded() -> None:
    async def play() -> float:
        session = Session()
        await session.reset(Task(env="NAME", family="buttons", seed=1))
        return (await session.step("click blue [2]")).reward

    assert asyncio.run(play()) == 1.0


def test_the_environment_passes_all_checks() -> None:
    env = config.Env(name="NAME:CLASS", sessions=2)
    results = asyncio.run(check_environment(env, range(3), lambda _: None))
    assert [result for result in results if not result.passed] == []
'''
RECIPE = """name = "NAME"

[model]
path = "miniwob-start"  # a small policy that ships with Quartet; any Hugging Face folder works

[env]
name = "NAME:CLASS"
screenshots = false

[rollout]
max_turns = 2
max_tokens = 8

[train]
groups_per_batch = 2
max_train_steps = 20
"""


def skeleton(name: str) -> dict[str, str]:
    """Return the contents of the module, its test and its recipe, by file name."""
    class_name = "".join(word.capitalize() for word in name.split("_")) or "Buttons"
    files = {f"{name}.py": ENVIRONMENT, f"test_{name}.py": TEST, f"{name}.toml": RECIPE}
    return {file: text.replace("NAME", name).replace("CLASS", class_name) for file, text in files.items()}
