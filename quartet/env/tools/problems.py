"""Generated problems for the tools, in three levels: one call; two calls, or one that takes thought; and several calls
without a hint at the tools."""

import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from quartet import config
from quartet.env.tools.toolbox import COLUMNS, Toolbox, ToolError
from quartet.errors import ConfigError, nearest
from quartet.types import Task, ToolCall

FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed
HELD_OUT_SHARE = 0.25
"""Share of all questions that only held-out seeds ask."""
ITEMS = ("lamp", "chair", "table", "clock", "carpet", "mirror", "shelf", "vase", "bench", "stool", "basket", "curtain")
NAMES = (
    *("Ana", "Bob", "Carl", "Dora", "Eva", "Finn", "Gina", "Hugo", "Iris", "Jon", "Kara", "Leo", "Mia", "Nils"),
    *("Olga", "Paul", "Rosa", "Sam", "Tina", "Uwe", "Vera", "Will", "Yara", "Zoe"),
)
CITIES = (
    *("Rome", "Oslo", "Lima", "Cairo", "Bern", "Paris", "Delhi", "Tokyo", "Quito", "Accra", "Hanoi", "Dublin"),
    *("Lyon", "Porto", "Turin", "Malmo", "Gdansk", "Leeds", "Osaka", "Fez", "Cusco", "Perth", "Izmir", "Riga"),
)
CONVERSIONS = (("m", "cm"), ("km", "m"), ("kg", "g"), ("t", "kg"), ("h", "min"), ("min", "s"), ("cm", "mm"))
Table = dict[str, dict[str, int]]
People = list[tuple[str, int, str]]


class Problem(Struct, frozen=True):
    """A question, and calls that lead to its answer. In a call `{0}` stands for the result of the first call."""

    question: str
    calls: list[ToolCall]


class World(Struct, frozen=True):
    """Data that the tools of a task return, and the source of the random choices of its question."""

    items: Table
    people: People
    draw: random.Random

    def toolbox(self) -> Toolbox:
        return Toolbox(self.items, self.people)


def problem_of(task: Task) -> tuple[Problem, World]:
    """Return the problem of a task and its world. No question of a held-out seed is one of a training seed.

    Raise `ConfigError` for an unknown family.
    """
    if task.family not in FAMILIES:
        raise ConfigError(f"unknown family {task.family!r} of tools", nearest(task.family, FAMILIES))
    held_out = task.seed >= FIRST_HELD_OUT_SEED
    draw = random.Random(f"tools/{task.family}/{task.seed}")
    while True:
        world = _world(draw)
        problem = FAMILIES[task.family](world)
        if (random.Random(problem.question).random() < HELD_OUT_SHARE) == held_out:
            return problem, world


def solve(problem: Problem, world: World) -> tuple[list[ToolCall], str]:
    """Return the calls with the results of earlier ones filled in, and the answer: the last result."""
    toolbox, calls, results = world.toolbox(), list[ToolCall](), list[str]()
    for call in problem.calls:
        arguments = {name: _filled(value, results) for name, value in call.arguments.items()}
        calls.append(ToolCall(name=call.name, arguments=arguments))
        try:
            results.append(toolbox.call(call.name, arguments))
        except ToolError as error:
            raise AssertionError(f"{problem.question}: {call} failed: {error}") from error
    toolbox.close()
    return calls, results[-1]


def _filled(value: Any, results: list[str]) -> Any:
    return value.format(*results) if isinstance(value, str) else value


def _world(draw: random.Random) -> World:
    limits = dict(zip(COLUMNS, (99, 20, 60), strict=True))
    items = {item: {name: draw.randint(2, most) for name, most in limits.items()} for item in draw.sample(ITEMS, 6)}
    cities = draw.sample(CITIES, 3)
    people = [(name, draw.randint(18, 70), draw.choice(cities)) for name in draw.sample(NAMES, 8)]
    return World(items, people, draw)


def _calculate(expression: str) -> ToolCall:
    return ToolCall(name="calculator", arguments={"expression": expression})


def _look_up(item: str, column: str) -> ToolCall:
    return ToolCall(name="lookup", arguments={"item": item, "column": column})


def _convert(value: int | str, unit: str, to: str) -> ToolCall:
    return ToolCall(name="convert", arguments={"value": value, "unit": unit, "to": to})


def _query(query: str) -> ToolCall:
    return ToolCall(name="sql", arguments={"query": query})


def _calculator_1(world: World) -> Problem:
    expression = f"{world.draw.randint(12, 99)} {world.draw.choice('+-*')} {world.draw.randint(12, 99)}"
    return Problem(f"Use calculator. What is {expression}?", [_calculate(expression)])


def _calculator_2(world: World) -> Problem:
    first, second, third = (world.draw.randint(12, 99) for _ in range(3))
    question = f"Use calculator. Add {first} and {second}, then subtract {third}. What is the result?"
    return Problem(question, [_calculate(f"{first} + {second} - {third}")])


def _calculator_3(world: World) -> Problem:
    boxes, bags, per_box, per_bag = (world.draw.randint(3, 40) for _ in range(4))
    question = f"A box holds {per_box} cups, a bag {per_bag} cups. How many cups are in {boxes} boxes and {bags} bags?"
    return Problem(question, [_calculate(f"{boxes} * {per_box} + {bags} * {per_bag}")])


def _table_1(world: World) -> Problem:
    item, column = world.draw.choice([*world.items]), world.draw.choice(COLUMNS)
    return Problem(f"Use lookup. What is the {column} of the {item}?", [_look_up(item, column)])


def _table_2(world: World) -> Problem:
    item, count = world.draw.choice([*world.items]), world.draw.randint(3, 40)
    calls = [_look_up(item, "price"), _calculate(f"{count} * {{0}}")]
    return Problem(f"Use lookup, then calculator. What is the price of {count} pieces of {item}?", calls)


def _table_3(world: World) -> Problem:
    (one, other), count, more = world.draw.sample([*world.items], 2), *world.draw.sample(range(3, 20), 2)
    calls = [_look_up(one, "price"), _look_up(other, "price"), _calculate(f"{count} * {{0}} + {more} * {{1}}")]
    return Problem(f"What is the price of {count} pieces of {one} and {more} pieces of {other} together?", calls)


def _units_1(world: World) -> Problem:
    value, (unit, to) = world.draw.randint(2, 60), world.draw.choice(CONVERSIONS)
    return Problem(f"Use convert. What are {value} {unit} in {to}?", [_convert(value, unit, to)])


def _units_2(world: World) -> Problem:
    value, more, (unit, to) = world.draw.randint(2, 30), world.draw.randint(2, 50), world.draw.choice(CONVERSIONS)
    calls = [_convert(value, unit, to), _calculate(f"{{0}} + {more}")]
    return Problem(f"Use convert, then calculator. What are {value} {unit} in {to}, plus {more} {to}?", calls)


def _units_3(world: World) -> Problem:
    item, count = world.draw.choice([*world.items]), world.draw.randint(3, 40)
    calls = [_look_up(item, "weight"), _calculate(f"{count} * {{0}}"), _convert("{1}", "kg", "g")]
    return Problem(f"The weight of items is in kg. What is the weight of {count} pieces of {item} in g?", calls)


def _database_1(world: World) -> Problem:
    name, _, _ = world.draw.choice(world.people)
    return Problem(f"Use sql. What is the age of {name}?", [_query(f"SELECT age FROM people WHERE name = '{name}'")])


def _database_2(world: World) -> Problem:
    _, _, city = world.draw.choice(world.people)
    question = f"Use sql. What is the SUM(age) of people with city = '{city}'?"
    return Problem(question, [_query(f"SELECT SUM(age) FROM people WHERE city = '{city}'")])


def _database_3(world: World) -> Problem:
    (one, _, _), (other, _, _) = world.draw.sample(world.people, 2)
    ages = [_query(f"SELECT age FROM people WHERE name = '{name}'") for name in (one, other)]
    months = world.draw.randint(2, 11)
    question = f"Add {months} to the age of {one} times the age of {other}. What is the result?"
    return Problem(question, [*ages, _calculate(f"{{0}} * {{1}} + {months}")])


FAMILIES: dict[str, Callable[[World], Problem]] = {
    "calculator_1": _calculator_1,
    "table_1": _table_1,
    "units_1": _units_1,
    "database_1": _database_1,
    "calculator_2": _calculator_2,
    "table_2": _table_2,
    "units_2": _units_2,
    "database_2": _database_2,
    "calculator_3": _calculator_3,
    "table_3": _table_3,
    "units_3": _units_3,
    "database_3": _database_3,
}
"""Families of problems, easy ones first. The number is the level."""
