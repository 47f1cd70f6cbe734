"""Text adventures that TextWorld generates: commands in words, with the game's score as reward."""

import shlex
from typing import Any, Literal

from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment, Expert, in_order
from quartet.env.extra import import_extra
from quartet.env.textworld.making import EXTRA, game_file
from quartet.env.textworld.session import TextWorldSession
from quartet.errors import ConfigError, nearest
from quartet.types import Task


class TextWorld(Environment):
    """Text adventures that TextWorld generates from the seed; each set of options of its `tw-make` is a family."""

    class Settings(Section):
        games: dict[str, str] = {"coin_collector": "tw-coin_collector --level 5"}
        """Task families, each with the arguments of `tw-make`, for example `custom --world-size 3 --quest-length 4`."""
        shown: list[Literal["description", "inventory", "admissible_commands"]] = []
        """Parts that every observation shows after the game's answer: the room, the things that the player has, and the
        commands that are possible now."""
        progress_reward: float = 0.0
        """Reward of a command that shortens the way to the end, and penalty of one that makes it longer."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`. By default
        three times the length of the solution of its first game, plus 5."""

    settings: Settings
    deterministic = True
    extra = EXTRA
    grammar = "a command such as `open door`"
    source = "Côté et al. 2018, TextWorld: A Learning Environment for Text-based Games"
    first_settings = {
        "env": {"screenshots": False, "step_timeout_seconds": 120.0},
        "rollout": {"loop": "append", "max_turns": 20, "max_tokens": 16},
        "control": {"horizon": ["suite"]},
    }

    def modules(self) -> list[str]:
        return ["textworld"]

    def families(self) -> list[str]:
        return list(self.settings.games)

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._solutions: dict[tuple[str, int], list[str]] = {}

    def session(self) -> Env:
        chosen: Any = TextWorldSession(self.start, self.settings.shown, self.settings.progress_reward)
        return chosen  # its plain functions are called in a thread

    def max_turns(self, family_name: str) -> int:
        return self.settings.turn_limit or 3 * len(self._solution(family_name, 0)) + 5

    def expert(self, family_name: str, seed: int) -> Expert:
        return in_order(self._solution(family_name, seed))

    def start(self, task: Task) -> Any:
        """Start the game of a task, which is made at its first use. Raise `ConfigError` for an unknown family and for
        wrong arguments."""
        if task.family not in self.settings.games:
            raise ConfigError(f"unknown family {task.family!r}", nearest(task.family, self.settings.games))
        textworld = import_extra("textworld", EXTRA)
        file = game_file([*shlex.split(self.settings.games[task.family]), "--seed", str(task.seed)])
        wanted = ("admissible_commands", "description", "inventory", "max_score", "objective", "score", "won")
        infos = textworld.EnvInfos(**dict.fromkeys([*wanted, "policy_commands", "intermediate_reward"], True))
        return textworld.start(str(file), infos)

    def _solution(self, family: str, seed: int) -> list[str]:
        """Return the commands of the package's own solution."""
        if (family, seed) not in self._solutions:
            game = self.start(Task(env="textworld", family=family, seed=seed))
            self._solutions[family, seed] = game.reset()["policy_commands"]
            game.close()
        return self._solutions[family, seed]
