"""Dialogues with customers of a shop, in the form of tau-bench: an agent has tools, a database and a simulated user."""

from typing import Any, Literal

from quartet.actions.taken import canonical
from quartet.config import Recipe
from quartet.config.section import Section
from quartet.env.base import Env, Environment, Expert, in_order
from quartet.env.earlier_turns import require_earlier_turns
from quartet.env.retail.session import RetailSession
from quartet.env.retail.tasks import FAMILIES, scenario_of
from quartet.errors import ConfigError
from quartet.types import Task, ToolCall

TURNS = {"1": 8, "2": 9, "3": 10}
"""Maximum number of the agent's turns by level: one question, the calls, the last message, and a margin."""


class Retail(Environment):
    """Customers of a shop cancel, return and redirect orders; the database at the end of the dialogue is the reward."""

    class Settings(Section):
        user: Literal["script", "policy"] = "script"
        """The customer: a deterministic script that answers what it is asked, or a policy of the recipe, which needs
        the loop `dialogue`."""

    settings: Settings
    deterministic = typed_actions = True
    grammar = '`call NAME {"argument": "value"}`, or a message to the customer'
    source = "Yao et al. 2024, tau-bench; Zhao et al. 2025, MUA-RL"
    first_settings = {
        "env": {"screenshots": False},
        "rollout": {"loop": "append", "max_turns": 12, "max_tokens": 96},
        "control": {"horizon": ["suite"]},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        loop = recipe.rollout.loop.name
        if (settings.user == "policy") != (loop == "dialogue"):
            raise ConfigError(
                f"env.user is {settings.user!r} and rollout.loop is {loop!r}",
                "a policy as user needs the loop 'dialogue', and a script any other",
            )
        require_earlier_turns(recipe, "the dialogue so far")

    @property
    def chat_instructions(self) -> str:
        """Return the form of a call; an empty text with a policy as user, which would read it too."""
        return super().chat_instructions if self.settings.user == "script" else ""

    def families(self) -> list[str]:
        return list(FAMILIES)

    def session(self) -> Env:
        return RetailSession(policy_as_user=self.settings.user == "policy")

    def max_turns(self, family_name: str) -> int:
        return TURNS[family_name[-1]]

    def expert(self, family_name: str, seed: int) -> Expert | None:
        return self._helper(family_name, seed, helps=True)

    def wrong_expert(self, family_name: str, seed: int) -> Expert | None:
        return self._helper(family_name, seed, helps=False)

    def _helper(self, family: str, seed: int, *, helps: bool) -> Expert | None:
        """Return an agent that asks for everything, finds the customer, and does what the customer wants; or one that
        only says so. A policy as user would need an agent that reads."""
        if self.settings.user == "policy":
            return None
        scenario = scenario_of(Task(env="retail", family=family, seed=seed))
        name, zip_code = (scenario.facts[fact].split(" is ")[1].rstrip(".") for fact in ("name", "zip"))
        find = ToolCall(name="find_customer", arguments={"name": name, "zip": zip_code})
        question = f"What are your {', '.join(scenario.facts)}?"
        helping = [*map(canonical, scenario.calls), f"It is done. {' '.join(scenario.outputs)}"]
        return in_order([question, canonical(find), *(helping if helps else ["It is done."])])
