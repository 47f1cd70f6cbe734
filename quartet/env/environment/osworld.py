"""OSWorld: tasks on virtual machines, reached by their guest servers' addresses."""

import logging
from functools import cached_property
from pathlib import Path

from quartet import config
from quartet.actions.grammar import GRAMMAR_WITHOUT_SELECT
from quartet.config.section import LocalPath, Positive, PositiveFloat, Section
from quartet.env.base import Environment, EnvPool
from quartet.env.deadlines import Deadlines
from quartet.env.osworld.judging import obstacle
from quartet.env.osworld.pool import GuestPool
from quartet.env.osworld.session import OSWorldSession
from quartet.env.osworld.task import EXAMPLES, load_task, task_files
from quartet.errors import ConfigError

LOG = logging.getLogger(__name__)


class OSWorld(Environment):
    """Tasks of OSWorld in guests that a provider (docker, a virtual machine, a cloud) has started."""

    class Settings(Section):
        tasks: LocalPath = ""
        """Folder of task files, such as `evaluation_examples/examples` of OSWorld; empty for two examples. Tasks whose
        setup or evaluator needs more than the guest's commands and files are left out, with the reasons in the log."""
        addresses: list[str] = []
        """Addresses of guest servers, `http://HOST:5000`, one for each of `env.sessions`."""
        revert_command: list[str] = []
        """Command of this machine that reverts a guest before each episode; `{address}` is replaced. Empty if the guest
        starts clean."""
        max_turns_per_episode: Positive = 30
        """Number of turns after which the episode ends and is judged."""
        launch_seconds: PositiveFloat = 10.0
        """Maximum wait for another list of windows after the setup has started a program, or for another picture if the
        guest has no accessibility tree. A task whose programs have no window waits this long."""
        settle_seconds: PositiveFloat = 3.0
        """Maximum wait for two equal pictures and lists of windows after an action."""

    settings: Settings
    source = "Xie et al. 2024, OSWorld: Benchmarking Multimodal Agents for Open-Ended Tasks"
    grammar = GRAMMAR_WITHOUT_SELECT
    typed_actions = judged_at_limit = True
    one_host = True
    first_settings = {
        "env": {
            "addresses": ["http://127.0.0.1:5000"],
            "sessions": 1,
            "step_timeout_seconds": 300.0,
        },
        "rollout": {"max_turns": 30, "max_tokens": 400},
    }

    def families(self) -> list[str]:
        return self._families

    def family_categories(self) -> dict[str, set[str]]:
        families = set(self.families())
        infeasible = {name for name in families if load_task(self._files[name]).infeasible}
        return {"feasible": families - infeasible, "infeasible": infeasible}

    def max_turns(self, family_name: str) -> int:
        return self.settings.max_turns_per_episode

    def pool(self, env: config.Env) -> EnvPool:
        if len(self.settings.addresses) < env.sessions:
            raise ConfigError(
                f"env.sessions is {env.sessions}, but env.addresses has {len(self.settings.addresses)}",
                "give the address of a guest's server for each session",
            )

        def session(address: str) -> OSWorldSession:
            return OSWorldSession(
                self._files,
                address,
                reverting=self.settings.revert_command,
                max_turns=self.settings.max_turns_per_episode,
                launch_seconds=self.settings.launch_seconds,
                settle_seconds=self.settings.settle_seconds,
                deadlines=Deadlines.of(env),
            )

        return GuestPool(session, self.settings.addresses[: env.sessions])

    @cached_property
    def _families(self) -> list[str]:
        """Names of the tasks that can be set up and judged. Raise `ConfigError` if there are none."""
        obstacles = {name: obstacle(load_task(file)) for name, file in self._files.items()}
        left_out = {name: reason for name, reason in obstacles.items() if reason}
        for name, reason in left_out.items():
            LOG.info("task %s is left out: %s", name, reason)
        if len(left_out) == len(obstacles):
            name, reason = next(iter(left_out.items()))
            raise ConfigError(
                f"none of the {len(obstacles)} tasks in {self.settings.tasks} can be set up and judged by this "
                f"adapter; {name}: {reason}",
                "see docs/desktop.md for the verbs, getters and metrics that it knows",
            )
        return [name for name, reason in obstacles.items() if not reason]

    @cached_property
    def _files(self) -> dict[str, Path]:
        return task_files(Path(self.settings.tasks or EXAMPLES))
