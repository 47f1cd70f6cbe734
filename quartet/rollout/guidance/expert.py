"""Agent-RLVR's guidance from a scripted expert: the action that the expert would take now."""

import re
from collections.abc import Callable
from functools import partial
from typing import cast

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.env import make_environment, suite_families
from quartet.errors import ConfigError, ExpertError
from quartet.registry import load_class
from quartet.rollout.guidance.base import Guidance, Guide
from quartet.types import Observation, Task

Advice = Callable[[str, Observation], str]
"""Function (family, observation) -> next action; "" for none."""
_ELEMENT = re.compile(r"\b(\w+) ([^\[\]]+?) \[\d+\]")
"""Word, label and reference of an element in an action."""


class ExpertGuidance(Guidance):
    """Give the expert's next action for the newest observation, in the environment's grammar.

    The advice is right only as far as the expert reads the observation: an expert that plays a fixed list of actions
    does not notice that the policy did something else.
    """

    class Settings(Section):
        function: str = ""
        """`module:function` that returns the action for a family and an observation, or "" for no advice. By default
        the expert of the environment acts (`Environment.expert`)."""
        template: str = "{action}"
        """Text of the advice. `{action}` is the expert's action, such as `click Cancel [7]`; `{quoted}` names elements
        by their labels only, as many goals do: `click "Cancel"`."""

    settings: Settings
    source = "Agent-RLVR, arXiv 2506.11425: guidance from a teacher for a second attempt"

    @classmethod
    def check(cls, settings: Settings, recipe: Recipe) -> None:
        if "{action}" not in settings.template and "{quoted}" not in settings.template:
            raise ConfigError(
                f"rollout.guidance.template = {settings.template!r} contains neither {{action}} nor {{quoted}}",
                "write {action} where the expert's action belongs",
            )
        guidance, env = cls(settings, recipe), recipe.env.name
        families = () if settings.function else suite_families(recipe.env)
        if missing := [family for family in families if not guidance.expert(Task(env=env, family=family, seed=0))]:
            raise ConfigError(
                f"the environment {env!r} has no expert for the family {missing[0]!r}",
                "name a function in rollout.guidance.function",
            )

    def guide(self, task: Task) -> Guide:
        expert = self.expert(task)
        assert expert is not None, "`check` refuses families without an expert"

        def advise(observation: Observation) -> str:
            try:
                action = expert(observation)
            except ExpertError:  # the policy has left the expert's way
                return ""
            return self._advice(action) if action else ""

        return advise

    def _advice(self, action: str) -> str:
        """Return the template with the action in it, whatever the action's own text contains."""
        elements, quote, typed = action.partition('"')
        texts = {"{action}": action, "{quoted}": _ELEMENT.sub(r'\1 "\2"', elements) + quote + typed}
        return re.sub(r"\{action\}|\{quoted\}", lambda place: texts[place[0]], self.settings.template)

    def expert(self, task: Task) -> Guide | None:
        """Return the expert of a task, or None if there is none. Raises `ConfigError` for an unknown function."""
        if not self.settings.function:
            return make_environment(self.recipe.env).expert(task.family, task.seed)
        advice = cast("Advice", load_class(self.settings.function, "guidance"))
        return partial(advice, task.family)
