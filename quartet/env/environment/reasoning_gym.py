"""Problems that reasoning-gym generates and verifies: each of its data sets is a task family."""

from typing import Annotated, Any

from pydantic import AfterValidator

from quartet.config.section import Section
from quartet.env.base import Env, Environment, Expert
from quartet.env.dataset.answers import extract, known_extractor
from quartet.env.extra import import_extra
from quartet.errors import ConfigError, nearest
from quartet.types import Message, Observation, StepResult, TakenAction, Task, Text

INEXACT = ("boxnet", "composite", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")
"""Data sets whose scorer gives their own answer less than 1 in version 0.1.25, or that need settings."""


class ReasoningGym(Environment):
    """Problems of reasoning-gym, generated from the seed. One response answers one problem."""

    class Settings(Section):
        options: dict[str, dict[str, Any]] = {}
        """Settings of generators by the name of the data set, for example `{leg_counting = {max_animals = 5}}`."""
        system: str = "Give only the answer."
        """System prompt; empty for none."""
        answer: Annotated[str, AfterValidator(known_extractor)] = "text"
        """Part of the response that is its answer, as in the environment `dataset`."""

    settings: Settings
    deterministic = True
    extra = "reasoning-gym"
    grammar = "the answer"
    source = "Stojanovski et al. 2025, Reasoning Gym: Reasoning Environments for RL with Verifiable Rewards"
    first_settings = {
        "env": {"families": ["basic_arithmetic", "leg_counting"], "screenshots": False},
        "rollout": {"max_turns": 1, "max_tokens": 256},
    }

    @property
    def chat_instructions(self) -> str:
        """Return an empty text, since `env.system` tells the form of an answer."""
        return ""

    def families(self) -> list[str]:
        import_extra("reasoning_gym", self.extra)
        known = import_extra("reasoning_gym.factory", self.extra).DATASETS
        if unknown := self.settings.options.keys() - known.keys():
            raise ConfigError(f"env.options names no data set {min(unknown)!r}", nearest(min(unknown), known))
        return sorted(name for name in known if name in self.settings.options or name not in INEXACT)

    def session(self) -> Env:
        chosen: Any = Problem(self)
        return chosen  # its plain functions are called in a thread

    def max_turns(self, family_name: str) -> int:
        return 1

    def expert(self, family_name: str, seed: int) -> Expert:
        _, entry = self.problem(Task(env="reasoning_gym", family=family_name, seed=seed))
        return lambda _: entry["answer"]

    def problem(self, task: Task) -> tuple[Any, dict[str, Any]]:
        """Return the data set of a task, which scores answers, and its only entry. Raise `ConfigError` for an unknown
        family."""
        if task.family not in self.families():
            raise ConfigError(f"unknown data set {task.family!r}", nearest(task.family, self.families()))
        options = self.settings.options.get(task.family, {})
        made = import_extra("reasoning_gym", self.extra).create_dataset(task.family, seed=task.seed, size=1, **options)
        return made, made[0]


class Problem:
    """One session."""

    def __init__(self, environment: ReasoningGym) -> None:
        self._environment = environment

    def reset(self, task: Task) -> Observation:
        """Show the problem of the task."""
        self._dataset, self._entry = self._environment.problem(task)
        system = self._environment.settings.system
        messages = [Message("system", system)] if system else []
        return Observation(goal="", text="", messages=[*messages, Message("user", self._entry["question"])])

    def step(self, action: str) -> StepResult:
        """Score the answer, which ends the episode."""
        answer = extract(self._environment.settings.answer, action)
        score = float(self._dataset.score_answer(answer, self._entry))
        return StepResult(
            observation=Observation(goal="", text=""),
            reward=score,
            terminated=True,
            info={"success": score >= 1.0},
            actions=[TakenAction(action=Text(text=action), canonical=answer)],
        )

    async def close(self) -> None:
        """Release nothing."""
