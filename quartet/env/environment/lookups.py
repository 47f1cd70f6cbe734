"""Look-ups: questions that need a known fact, a table on the page, or both, with splits that hold relations out.

A fact is a number of a person, such as the room of tom. Facts are the same in all tasks, and no page shows them. A
table on the page says what belongs to a number, such as its colour, and is drawn anew for every task. The families:

    parametric     a fact:             room tom           the response tom3
    contextual     a line of a table:  colour 3           the response 3red
    iid            both:               colour room tom    the response tom3red
    composition    both, with pairs of relations that do not occur in `iid`; each relation does
    zero_shot      both, with at least one relation that does not occur in `iid`

The last word of a response, or its last digit, is the answer; what precedes it is not judged. An answer ends the
episode. A table has a line for each of four numbers in two relations, so the question decides between two lines.
"""

import random
import re
from functools import cache
from itertools import product

from quartet.env.base import Env, Environment, Expert
from quartet.errors import ConfigError, EnvError, nearest
from quartet.types import Observation, StepResult, Task

PEOPLE = ("anna", "bert", "carl", "dora", "emil", "fred", "gina", "hugo", "ida", "jack", "kate", "lena")
FACTS = ("room", "desk", "shift", "floor")
"""Relations from a person to a number. The last one does not occur in `iid`, like the last one of `TABLES`."""
TABLES = {
    "colour": ("red", "blue", "green", "black", "white", "brown", "pink", "grey"),
    "fruit": ("apple", "pear", "plum", "cherry", "fig", "lemon", "melon", "grape"),
    "animal": ("dog", "cat", "cow", "hen", "pig", "fox", "owl", "bee"),
    "metal": ("iron", "gold", "zinc", "tin", "lead", "silver", "nickel", "steel"),
}
"""Relation from a number to a word -> its words."""
NUMBERS = "0123456789"
KEYS = 4
"""Number of numbers in a table."""
FAMILIES = ("parametric", "contextual", "iid", "composition", "zero_shot")
_PIECE = re.compile(r"[a-z]+|\d")


class Lookups(Environment):
    """Questions about facts, tables or both, with held-out relations: do two known skills make a third?"""

    deterministic = True
    grammar = "words and digits, of which the last one is the answer"
    source = "From Atomic to Composite: Reinforcement Learning Enables Generalization in Complementary Reasoning"
    first_settings = {
        "env": {"families": ["iid"], "screenshots": False},
        "rollout": {"max_turns": 1, "max_tokens": 8},
    }

    def families(self) -> list[str]:
        return list(FAMILIES)

    def session(self) -> Env:
        return LookupsEnv()

    def max_turns(self, family_name: str) -> int | None:
        return 1

    def expert(self, family_name: str, seed: int) -> Expert | None:
        return lambda seen: "".join(chain(seen))


class LookupsEnv:
    """One session."""

    def __init__(self) -> None:
        self._page: Observation | None = None

    async def reset(self, task: Task) -> Observation:
        """Ask a question. Raise `ConfigError` for an unknown family."""
        self._page = page(task)
        return self._page

    async def step(self, action: str) -> StepResult:
        """Judge the answer, which ends the episode."""
        if self._page is None:
            raise EnvError("a question was answered before the first reset", "call reset(task) first")
        right = is_right(self._page, action)
        return StepResult(
            observation=self._page, reward=float(right), terminated=True, info={"success": True} if right else {}
        )

    async def close(self) -> None:
        self._page = None


@cache
def number_of(relation: str, person: str) -> str:
    """Return a fact."""
    return random.Random(f"lookups/{relation}/{person}").choice(NUMBERS)


@cache
def pairs(family: str) -> list[tuple[str, str]]:
    """Return the pairs of a relation of `FACTS` and one of `TABLES` about which a family asks. Raise `ConfigError` for
    a family that asks about no pair."""
    known = list(product(FACTS[:-1], list(TABLES)[:-1]))
    novel = [*zip(FACTS[:-1], TABLES, strict=False)]
    asked = {
        "iid": [pair for pair in known if pair not in novel],
        "composition": novel,
        "zero_shot": [pair for pair in product(FACTS, TABLES) if pair not in known],
    }
    if family not in asked:
        raise ConfigError(f"unknown family {family!r} of lookups", nearest(family, FAMILIES))
    return asked[family]


def page(task: Task) -> Observation:
    """Return the question of a task, and the table if the question needs one."""
    draw = random.Random(task.key)
    person, number = draw.choice(PEOPLE), draw.choice(NUMBERS)
    if task.family == "parametric":
        return Observation(goal=f"{draw.choice(FACTS)} {person}", text="")
    if task.family == "contextual":
        relation, asked = draw.choice(list(TABLES)), number
    else:
        fact, relation = draw.choice(pairs(task.family))
        number, asked = number_of(fact, person), f"{fact} {person}"
    other = draw.choice([one for one in TABLES if one != relation])
    keys = [number, *draw.sample([one for one in NUMBERS if one != number], KEYS - 1)]
    words = [word for one in (relation, other) for word in draw.sample(TABLES[one], KEYS)]
    lines = [f"{key}{word}" for key, word in zip(keys * 2, words, strict=True)]
    draw.shuffle(lines)
    return Observation(goal=f"{relation} {asked}", text="\n".join(lines))


def chain(seen: Observation) -> list[str]:
    """Return the person or number of a question, and what follows from it; the last entry is the answer."""
    *relations, last = seen.goal.split()
    found = [last]
    if relations[-1] in FACTS:
        found.append(number_of(relations.pop(), last))
    if relations:
        (word,) = {line[1:] for line in seen.text.split("\n") if line[0] == found[-1]} & {*TABLES[relations[0]]}
        found.append(word)
    return found


def is_right(seen: Observation, response: str) -> bool:
    """Return whether the last word or digit of a response answers the question."""
    return _PIECE.findall(response.lower())[-1:] == chain(seen)[-1:]
