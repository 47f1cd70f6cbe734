"""Desktop: real programs on an X display per session, which is imported when its sessions are first needed."""

from functools import cached_property
from pathlib import Path
from typing import Literal

from quartet import config
from quartet.actions.grammar import GRAMMAR
from quartet.config.section import LocalPath, Positive, Section
from quartet.env.base import Environment, EnvPool, Expert
from quartet.env.desktop.expert import ScriptedExpert
from quartet.env.desktop.needs import require_programs
from quartet.env.desktop.task.family import DesktopTask, family_files, folders, load_task
from quartet.errors import ConfigError
from quartet.registry import lookup


class DesktopEnvironment(Environment):
    """Tasks in an editor, a calculator, a file manager, a spreadsheet and a terminal, judged by files and windows."""

    class Settings(Section):
        width: Positive = 800
        """Width of the screen in pixels."""
        height: Positive = 600
        """Height of the screen in pixels."""
        tasks: LocalPath = ""
        """Folder with further task families, one TOML file each; a file replaces a shipped family of its name."""
        apps: list[str] = []
        """Programs whose task families are used, by the family's `app`; empty means all."""
        sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
        """Confinement of the programs, which run whatever a policy types. `none` gives them the user's own files and
        the network: choose it only in a machine or container that can be thrown away."""

    settings: Settings
    source = "Xie et al. 2024, OSWorld: Benchmarking Multimodal Agents for Open-Ended Tasks (shape of the tasks)"
    grammar = GRAMMAR
    typed_actions = judged_at_limit = True
    needs_desktop = True
    first_settings = {
        "env": {"sessions": 4, "step_timeout_seconds": 60.0},
        "rollout": {"max_turns": 16, "max_tokens": 40},
        "control": {"horizon": ["suite"]},
    }

    def families(self) -> list[str]:
        apps = self.settings.apps
        found = [name for name in self._files if not apps or self._task(name).app in apps]
        if not found:
            raise ConfigError(f"no task families of {', '.join(apps)}", "remove env.apps to use all")
        return found

    def family_categories(self) -> dict[str, set[str]]:
        families = set(self.families())
        infeasible = {name for name in families if self._task(name).infeasible}
        return {"feasible": families - infeasible, "infeasible": infeasible}

    def max_turns(self, family_name: str) -> int:
        return self._task(family_name).max_turns

    def expert(self, family_name: str, seed: int) -> Expert:
        return ScriptedExpert(self._task(family_name, seed).expert)

    def wrong_expert(self, family_name: str, seed: int) -> Expert | None:
        script = self._task(family_name, seed).wrong
        return ScriptedExpert(script) if script else None

    def pool(self, env: config.Env) -> EnvPool:
        require_programs()
        from quartet.env.desktop.pool import desktop_pool

        return desktop_pool(env, self.settings, self._files)

    @cached_property
    def _files(self) -> dict[str, Path]:
        return family_files(folders(self.settings.tasks))

    def _task(self, family: str, seed: int = 0) -> DesktopTask:
        return load_task(lookup("task family", family, self._files), seed)
