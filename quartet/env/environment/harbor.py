"""Tasks in the format of Harbor (Terminal-Bench 2): an agent runs commands, and the tests of the task score it."""

from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from quartet import config
from quartet.config import Recipe
from quartet.config.section import Fraction, LocalPath, Positive, PositiveFloat, Section
from quartet.env.base import Env, Environment, EnvPool, Expert, in_order
from quartet.env.confinement import require_bubblewrap
from quartet.env.dataset.rows import FIRST_HELD_OUT_SEED, drawn
from quartet.env.earlier_turns import require_earlier_turns
from quartet.env.environment.tools import write_call
from quartet.env.harbor.collection import Collection, collect
from quartet.env.harbor.images import Images
from quartet.env.harbor.mounts import require_hidden
from quartet.env.harbor.session import HarborSession
from quartet.env.harbor.solution import solving
from quartet.env.harbor.task import HarborTask
from quartet.errors import ConfigError, nearest
from quartet.shipped import recipes_folder
from quartet.types import Task, ToolCall

EXAMPLE = str(recipes_folder() / "harbor_tasks")
"""Two small tasks, of a first recipe and of the tests."""
ALL = "tasks"
"""The only family."""


class Harbor(Environment):
    """Tasks in the format of Harbor, played without Docker: with the programs of this machine, confined by Bubblewrap,
    and without network."""

    class Settings(Section):
        tasks: LocalPath
        """Folder of task folders, each with a task.toml."""
        held_out: LocalPath = ""
        """Folder of task folders for evaluation. If empty, a share of the tasks, which training then leaves out."""
        held_out_share: Fraction = 0.1
        """Share of tasks for evaluation without `held_out`; chosen by a hash of the folder's name."""
        unsupported: Literal["error", "skip"] = "error"
        """Treatment of tasks that need Docker, such as those with several containers. `skip` leaves them out and logs
        the reasons."""
        require_solution: bool = True
        """Run the solution of each task before its first episode, and fail the reset if it does not get a reward of 1
        here. Otherwise a task that lacks a program of this machine would be rewarded with zeros."""
        command_timeout_seconds: PositiveFloat = 10.0
        """Time after which the commands of a response are killed; the agent reads this."""
        test_timeout_seconds: PositiveFloat = 60.0
        """Maximum duration of a task's tests, if its own limit is not lower. After it the rollout ends as
        `error_reward`."""
        turn_limit: Positive = 20
        """Turn limit of a task, after which the tests score what there is."""
        output_characters: Positive = 2000
        """Maximum length of a command's output that the agent reads; the middle of a longer one is left out."""
        memory_megabytes: Positive = 2048
        """Maximum memory (addresses) of each process, if the task's own limit is not lower."""
        programs: list[LocalPath] = []
        """Folders that commands may read beside the system's programs, such as a virtual environment with pytest; their
        `bin` comes first in the path."""

    settings: Settings
    typed_actions = judged_at_limit = True
    grammar = '`call bash {"command": "..."}`, or a text that ends the episode'
    source = "Harbor 0.26, Terminal-Bench 2: format of tasks"
    first_settings = {
        "env": {
            "tasks": EXAMPLE,
            "held_out": EXAMPLE,
            "screenshots": False,
            "step_timeout_seconds": 120.0,
            "reset_timeout_seconds": 600.0,
        },
        "rollout": {"loop": "append", "max_turns": 20, "max_tokens": 512},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        require_earlier_turns(recipe, "the results of earlier commands")
        longest = settings.command_timeout_seconds + settings.test_timeout_seconds
        if longest >= recipe.env.step_timeout_seconds:
            raise ConfigError(
                f"commands and tests may take {longest:g} s, but a step only env.step_timeout_seconds = "
                f"{recipe.env.step_timeout_seconds:g}",
                "raise the latter above env.command_timeout_seconds + env.test_timeout_seconds",
            )
        first = 2 * settings.test_timeout_seconds if settings.require_solution else 0.0
        reset_seconds = recipe.env.reset_timeout_seconds or recipe.env.step_timeout_seconds
        if first >= reset_seconds:
            raise ConfigError(
                f"the solution and the tests before a task's first episode may take {first:g} s, but a reset only "
                f"{reset_seconds:g}",
                "raise env.reset_timeout_seconds above twice env.test_timeout_seconds, and above the task's build",
            )
        if recipe.evaluation.first_seed < FIRST_HELD_OUT_SEED:
            raise ConfigError(
                f"tasks are held out for seeds from {FIRST_HELD_OUT_SEED:,} on, but evaluation.first_seed is lower",
                f"leave it at {FIRST_HELD_OUT_SEED:,} or above",
            )
        for folder in filter(None, (settings.tasks, settings.held_out)):
            require_hidden(Path(folder), settings.programs)

    def families(self) -> list[str]:
        return [ALL] if self._tasks.training else []

    def num_train_tasks(self, family_name: str) -> int:
        return len(self._tasks.training)

    def num_held_out_tasks(self, family_name: str) -> int:
        return len(self._tasks.held_out)

    def max_turns(self, family_name: str) -> int:
        return self.settings.turn_limit

    def pool(self, env: config.Env) -> EnvPool:
        require_bubblewrap("commands of an agent", "")
        return super().pool(env)

    def session(self) -> Env:
        settings = self.settings
        chosen: Any = HarborSession(
            self.task,
            self._images,
            command_seconds=settings.command_timeout_seconds,
            test_seconds=settings.test_timeout_seconds,
            turn_limit=settings.turn_limit,
            characters=settings.output_characters,
        )
        return chosen  # its plain functions are called in a thread

    def expert(self, family_name: str, seed: int) -> Expert | None:
        """Return an agent that writes the files of the solution and runs it."""
        command = solving(self.task(Task(env="harbor", family=family_name, seed=seed)))
        call = write_call(ToolCall(name="bash", arguments={"command": command}))
        return in_order([call, "done"]) if command else None

    def task(self, task: Task) -> HarborTask:
        """Return the task of a seed. Raise `ConfigError` for an unknown family."""
        if task.family != ALL:
            raise ConfigError(f"unknown family {task.family!r}", nearest(task.family, [ALL]))
        return drawn(*self._tasks, task.seed)

    @cached_property
    def _images(self) -> Images:
        settings = self.settings
        return Images(
            settings.memory_megabytes,
            settings.programs,
            settings.test_timeout_seconds,
            require_solution=settings.require_solution,
        )

    @cached_property
    def _tasks(self) -> Collection:
        settings = self.settings
        skip = settings.unsupported == "skip"
        found = collect(settings.tasks, settings.held_out, settings.held_out_share, skip=skip)
        for task in (*found.training, *found.held_out):
            require_hidden(task.folder, settings.programs)  # a link may lead there
        return found
