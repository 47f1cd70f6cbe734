"""Skeleton of an environment: the files that `quartet env new` writes."""

import builtins
import re

TAKEN = {"Env", "Environment", "Expert", "Observation", "Session", "StepResult", "Task", *dir(builtins)}
"""Names that the module uses, which its class must not have."""

ENVIRONMENT = '''"""Environment `NAME`: each house hides a prize behind one of its doors."""

from quartet.env.base import Env, Environment, Expert, in_order
from quartet.types import Observation, StepResult, Task

PAGE = "button red [1]\\nbutton green [2]\\nbutton blue [3]"
DOORS = {"tower": "[1]", "cellar": "[2]", "attic": "[3]"}  # a policy learns from rewards which door is right


class Session(Env):
    async def reset(self, task: Task) -> Observation:
        self.house = list(DOORS)[task.seed % 3]  # the same task shows the same house
        return self.observe()

    async def step(self, action: str) -> StepResult:
        opened = action[-3:]
        error = "" if opened in DOORS.values() else "write click and a number in brackets, such as click red [1]"
        reward = float(opened == DOORS[self.house])
        return StepResult(observation=self.observe(error), reward=reward, terminated=not error)

    def observe(self, error: str = "") -> Observation:
        text = f"heading {self.house}\\n{PAGE}"
        return Observation(goal="Find the prize: red or green or blue.", text=text, error=error)


class CLASS(Environment):
    """Houses with three doors, one of which hides a prize."""

    deterministic = True  # the same actions in a task give the same observations
    grammar = "click and a door, such as `click red [1]`"

    def families(self) -> list[str]:
        return ["houses"]

    def session(self) -> Session:
        return Session()

    def expert(self, family_name: str, seed: int) -> Expert:
        return in_order([f"click {list(DOORS.values())[seed % 3]}"])
'''
TEST = '''"""The environment `NAME` passes all checks of `quartet env check`."""

import asyncio

from NAME import Session

from quartet import config
from quartet.env.check.run import check_environment
from quartet.types import Task


def test_the_right_door_is_rewarded() -> None:
    async def play() -> float:
        session = Session()
        await session.reset(Task(env="NAME", family="houses", seed=1))
        return (await session.step("click green [2]")).reward

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
max_train_steps = 6  # a few more, and no task is left that the policy sometimes fails
"""


def skeleton(name: str) -> dict[str, str]:
    """Return the contents of the module, its test and its recipe, by file name."""
    class_name = "".join(word.capitalize() for word in name.split("_"))
    if not class_name.isidentifier():
        class_name = "Houses"
    if class_name in TAKEN:
        class_name += "Houses"
    words = {"NAME": name, "CLASS": class_name}
    files = {f"{name}.py": ENVIRONMENT, f"test_{name}.py": TEST, f"{name}.toml": RECIPE}
    return {file: re.sub("NAME|CLASS", lambda word: words[word[0]], text) for file, text in files.items()}
