"""MiniWoB++: small web pages in a browser, which is imported when its sessions are first needed."""

from typing import Any

from quartet import config
from quartet.actions.grammar import GRAMMAR
from quartet.config import Recipe
from quartet.config.section import Section
from quartet.env.base import Environment, EnvPool, Expert
from quartet.env.miniwob.suite import Family, family, suite_of
from quartet.errors import ConfigError


class MiniWob(Environment):
    """Tasks of MiniWoB++ in the windows of one Chromium; each takes a few clicks or key presses."""

    class Settings(Section):
        suite: str = "miniwob-24"
        """Named suite of task families. `miniwob-all` has every page of the package that can be solved in turns."""
        elements: bool = True
        """List the elements of the page as text. Without them only the picture shows the page."""

    settings: Settings
    source = "Liu et al. 2018, Reinforcement Learning on Web Interfaces using Workflow-Guided Exploration"
    grammar = GRAMMAR
    typed_actions = generates_instructions = True
    needs_browser = True
    first_settings = {
        "env": {"suite": "miniwob-24"},
        "rollout": {"max_turns": 16, "max_tokens": 40},
        "control": {"horizon": ["suite"]},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        """Raise `ConfigError` if observations would show nothing of the page."""
        if not settings.elements and not recipe.env.screenshots:
            raise ConfigError(
                "env.elements and env.screenshots are both false, so that nothing shows the page", "set one of them"
            )

    def families(self) -> list[str]:
        return [family.name for family in self._suite]

    def undemonstrated(self) -> set[str]:
        return {family.name for family in self._suite if not family.demonstrated}

    def max_turns(self, family_name: str) -> int:
        return family(self.settings.suite, family_name).max_turns

    def expert(self, family_name: str, seed: int) -> Expert | None:
        """Return an expert, which reads the elements of the page."""
        from quartet.env.miniwob.experts import make_expert

        return make_expert(family_name) if self.settings.elements else None

    def pool(self, env: config.Env) -> EnvPool:
        from quartet.env.miniwob.env import MiniWobPool

        rewards = {family.name: family.success_reward for family in self._suite}
        return MiniWobPool(env, rewards, elements=self.settings.elements)

    @property
    def _suite(self) -> tuple[Family, ...]:
        return suite_of(self.settings.suite)
