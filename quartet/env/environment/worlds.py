"""Worlds: five small text worlds, like the five kinds of environment of AgentGym-RL, at a small scale.

| family | a task | right moves | turn limit |
|---|---|---|---|
| `web-easy`, `web-hard` | order an item of a shop, as in WebArena | 3, 5 | 8 |
| `search-easy`, `search-hard` | answer a question with queries, as in SearchQA | 2, 4 | 5 |
| `craft-easy`, `craft-hard` | craft an item of materials, as in TextCraft | 3, 7 | 15 |
| `house-easy`, `house-hard` | carry a thing to another room, as in BabyAI | 3, 7 | 10 |
| `lab-easy`, `lab-hard` | prepare a substance and measure it, as in SciWorld | 4, 7 | 15 |

Turn limits are half of AgentGym-RL's. A page shows all that the next right move depends on, with two exceptions: a
document of `search` does not say whether an earlier one led to it, and in `house` a thing that was put down in another
room is not shown.
"""

import random
from itertools import product

from quartet.env.base import Env, Environment, Expert
from quartet.env.worlds.base import World
from quartet.env.worlds.craft import Craft
from quartet.env.worlds.house import House
from quartet.env.worlds.lab import Lab
from quartet.env.worlds.search import Search
from quartet.env.worlds.session import WorldSession, written
from quartet.env.worlds.web import Web
from quartet.errors import ConfigError, nearest
from quartet.types import Observation

KINDS: dict[str, type[World]] = {"web": Web, "search": Search, "craft": Craft, "house": House, "lab": Lab}
LEVELS = ("easy", "hard")
FAMILIES = [f"{kind}-{level}" for kind, level in product(KINDS, LEVELS)]


class Worlds(Environment):
    """Five small text worlds, like the kinds of environment of AgentGym-RL: web, search, craft, house and lab."""

    deterministic = True
    grammar = '`click NAME [1]` or `type NAME [2] "text"`'
    source = "AgentGym-RL, arXiv 2509.08755"
    first_settings = {
        "env": {"families": ["web-easy", "house-easy"], "screenshots": False},
        "rollout": {"max_turns": 15, "max_tokens": 8},
        "control": {"horizon": ["suite"]},
    }

    def families(self) -> list[str]:
        return FAMILIES

    def session(self) -> Env:
        return WorldSession(lambda task: make_world(task.family, task.seed))

    def max_turns(self, family_name: str) -> int:
        return KINDS[family_name.partition("-")[0]].max_turns

    def expert(self, family_name: str, seed: int) -> Expert:
        """Return the expert, which makes its moves in a copy of the task as well."""
        world = make_world(family_name, seed)

        def act(_: Observation) -> str:
            move = world.right_move()
            response = written(world, move)
            world.move(move)
            return response

        return act


def make_world(family: str, seed: int) -> World:
    """Return a task in its first state. Raise `ConfigError` for an unknown family."""
    if family not in FAMILIES:
        raise ConfigError(f"unknown family {family!r} of worlds", nearest(family, FAMILIES))
    kind, _, level = family.partition("-")
    return KINDS[kind](random.Random(f"{family}/{seed}"), hard=level == "hard")
