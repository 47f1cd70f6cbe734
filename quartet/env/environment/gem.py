"""Games of GEM (`gem-llm`), for one player: a step takes one response and returns one reward."""

from typing import Any

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment
from quartet.env.extra import import_extra
from quartet.env.own_random import OwnRandom
from quartet.errors import ConfigError, nearest
from quartet.types import Observation, StepResult, TakenAction, Task, Text

_ROWS = "its seeds do not divide training from evaluation"
REFUSED = {
    "gem.envs.reasoning_gym": (
        "its scorer may run a response as Python in the host, and all its seeds draw from the same 500 problems",
        'use the environment reasoning_gym with answer = "boxed"',
    ),
    "gem.envs.math_env": (_ROWS, "use the environment dataset with the reward math"),
    "gem.envs.math_visual_env": (_ROWS, "use the environment dataset with the reward math"),
    "gem.envs.code_env": (
        "it runs the programs of responses without confinement",
        "use the environment dataset with the reward code",
    ),
    "gem.envs.qa_env": (_ROWS, "use the environment dataset with the reward exact_match"),
}
"""Modules of GEM whose environments are refused: why, and what to use instead."""


class Gem(Environment):
    """Environments of GEM by their ids, which are the task families."""

    class Settings(Section):
        ids: list[str]
        """Ids of environments, for example `game:GuessTheNumber-v0-easy`."""
        options: dict[str, Any] = {}
        """Keyword arguments of `gem.make`."""
        history: bool = True
        """Show in every observation all that the player has read so far; false shows only what is new, for the loop
        `append`."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`. By default
        the environment's own, if its id has one."""

    settings: Settings
    deterministic = True
    extra = "gem"
    grammar = "the answer in a box, such as `\\boxed{5}`"
    source = "Liu et al. 2025, GEM: A Gym for Agentic LLMs"
    first_settings = {
        "env": {"ids": ["game:GuessTheNumber-v0-easy"], "screenshots": False},
        "rollout": {"max_turns": 8, "max_tokens": 64},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        if not settings.history and recipe.rollout.loop.name != "append":
            raise ConfigError(
                f"the loop {recipe.rollout.loop.name!r} shows no earlier observations", "set env.history = true"
            )

    def modules(self) -> list[str]:
        return ["gem"]

    def families(self) -> list[str]:
        return self.settings.ids

    def session(self) -> Env:
        chosen: Any = GemSession(self)
        return chosen  # its plain functions are called in a thread

    def max_turns(self, family_name: str) -> int | None:
        own = self._specification(family_name).kwargs.get("max_turns")
        return self.settings.turn_limit or own

    def make(self, family: str) -> Any:
        """Make an environment without wrappers. Raise `ConfigError` for an id that is unknown or refused."""
        self._specification(family)
        return import_extra("gem", self.extra).make(family, **self.settings.options)

    def _specification(self, family: str) -> Any:
        """Return GEM's entry of an id. Raise `ConfigError` for an id that is unknown or refused."""
        import_extra("gem", self.extra)
        registry = import_extra("gem.envs.registration", self.extra).ENV_REGISTRY
        if family not in registry:
            raise ConfigError(f"env.ids: unknown environment {family!r} of GEM", nearest(family, registry))
        if refusal := REFUSED.get(str(registry[family].entry_point).partition(":")[0]):
            raise ConfigError(f"env.ids: {family!r} of GEM is not played: {refusal[0]}", refusal[1])
        return registry[family]


class GemSession:
    """One session; GEM itself judges invalid responses, most of which end the episode with a negative reward."""

    def __init__(self, environment: Gem) -> None:
        self._environment = environment

    def reset(self, task: Task) -> Observation:
        """Start an episode with the task's seed."""
        self._random, self._read = OwnRandom(task.seed), list[str]()
        with self._random.drawing():
            self._game = self._environment.make(task.family)
            text, info = self._game.reset(seed=task.seed)
        return self._observe(text, info)

    def step(self, action: str) -> StepResult:
        """Pass the response to the environment."""
        with self._random.drawing():
            text, reward, terminated, truncated, info = self._game.step(action)
        ended = bool(terminated or truncated)
        return StepResult(
            observation=self._observe(text, info),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated and not terminated),
            info={"success": float(reward) >= 1.0} if ended else {},
            actions=[TakenAction(action=Text(text=action), canonical=action)],
        )

    async def close(self) -> None:
        """Release nothing."""

    def _observe(self, text: str, info: dict[str, Any]) -> Observation:
        """Return what the player reads, and the environment's request for the next response."""
        self._read.append(text)
        shown = self._read if self._environment.settings.history else [text]
        return Observation(goal="", text="\n".join([*shown, info.get("suffix", "")]).strip())
