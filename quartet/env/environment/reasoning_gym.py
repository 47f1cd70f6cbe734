"""Problems that reasoning-gym generates and verifies: each of its data sets is a task family."""

import pickle
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from quartet import config
from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment, EnvPool, Expert
from quartet.env.confinement import require_bubblewrap
from quartet.env.dataset.answers import extract, known_extractor
from quartet.env.dataset.session import DatasetPool
from quartet.env.extra import import_extra
from quartet.env.rewards.base import Case
from quartet.env.scoring.scorer import Scorer
from quartet.errors import ConfigError, nearest
from quartet.types import Message, Observation, StepResult, TakenAction, Task, Text

INEXACT = ("boxnet", "composite", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")
"""Data sets whose scorer gives their own answer less than 1 in version 0.1.25, or that need settings."""
WALL_SECONDS = 5
"""Seconds of the clock for each second of the processor that an answer may need, on a busy machine."""
VERIFIER = "quartet.env.scoring.verifier:Verifier"


class ReasoningGym(Environment):
    """Problems of reasoning-gym, generated from the seed. One response answers one problem."""

    class Settings(Section):
        options: dict[str, dict[str, Any]] = {}
        """Settings of generators by the name of the data set, for example `{leg_counting = {max_animals = 5}}`."""
        system: str = "Give only the answer."
        """System prompt; empty for none."""
        answer: Annotated[str, AfterValidator(known_extractor)] = "text"
        """Part of the response that is its answer, as in the environment `dataset`."""
        answer_seconds: Positive = 2
        """Maximum processor time of scoring an answer; one that needs more, such as `9**9**9`, scores 0."""
        processes: Positive = 1
        """Number of processes that score answers, which is the number of answers scored at the same time."""
        sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
        """Confinement of the processes that score answers, since several data sets evaluate them as Python. `none` lets
        an answer do everything that the user may do: only for a machine or container that can be thrown away."""

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

    def modules(self) -> list[str]:
        return ["reasoning_gym"]

    def families(self) -> list[str]:
        import_extra("reasoning_gym", self.extra)
        known = import_extra("reasoning_gym.factory", self.extra).DATASETS
        if unknown := self.settings.options.keys() - known.keys():
            raise ConfigError(f"env.options names no data set {min(unknown)!r}", nearest(min(unknown), known))
        return sorted(name for name in known if name in self.settings.options or name not in INEXACT)

    def pool(self, env: config.Env) -> EnvPool:
        settings, confined = self.settings, self.settings.sandbox == "bubblewrap"
        if confined:
            require_bubblewrap("the answers that reasoning-gym evaluates", "env.sandbox")
        limits = {"options": settings.options, "answer_seconds": settings.answer_seconds}
        wall = {"timeout_seconds": WALL_SECONDS * settings.answer_seconds, "processes": settings.processes}
        verifier = config.Reward.model_validate({"name": VERIFIER, **limits, **wall})
        scorer = Scorer(verifier, start_seconds=env.start_timeout_seconds, confined=confined)

        def session() -> Env:
            chosen: Any = Problem(self, scorer)
            return chosen  # its plain function is called in a thread

        return DatasetPool(session, env.sessions, [scorer])

    def max_turns(self, family_name: str) -> int:
        return 1

    def expert(self, family_name: str, seed: int) -> Expert:
        entry = self.problem(Task(env="reasoning_gym", family=family_name, seed=seed))
        return lambda _: entry["answer"]

    def problem(self, task: Task) -> dict[str, Any]:
        """Return the entry of a task: its question, its answer, and what scores answers. Raise `ConfigError` for an
        unknown family."""
        if task.family not in self.families():
            raise ConfigError(f"unknown data set {task.family!r}", nearest(task.family, self.families()))
        options = self.settings.options.get(task.family, {})
        library = import_extra("reasoning_gym", self.extra)
        return library.create_dataset(task.family, seed=task.seed, size=1, **options)[0]


class Problem:
    """One session."""

    def __init__(self, environment: ReasoningGym, scorer: Scorer) -> None:
        self._environment, self._scorer = environment, scorer

    def reset(self, task: Task) -> Observation:
        """Show the problem of the task."""
        entry = self._environment.problem(task)
        self._row = {"family": task.family, "seed": task.seed, "entry": pickle.dumps(entry)}
        system = self._environment.settings.system
        self._prompt = [Message("system", system)] if system else []
        self._prompt.append(Message("user", entry["question"]))
        return Observation(goal="", text="", messages=self._prompt)

    async def step(self, action: str) -> StepResult:
        """Score the answer, which ends the episode."""
        answer = extract(self._environment.settings.answer, action)
        case = Case(row=self._row, prompt=self._prompt, response=action, answer=answer)
        score = sum((await self._scorer.score(case)).values())
        return StepResult(
            observation=Observation(goal="", text=""),
            reward=score,
            terminated=True,
            info={"success": score >= 1.0},
            actions=[TakenAction(action=Text(text=action), canonical=answer)],
        )

    async def close(self) -> None:
        """Release nothing: the pool owns the processes that score."""
