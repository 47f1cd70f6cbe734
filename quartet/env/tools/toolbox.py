"""Tools for generated tasks: a calculator, a table, conversion of units, and a small SQLite database."""

import ast
import operator
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from quartet.types import Function, Tool

MAX_CHARACTERS = 200
"""Maximum length of an expression or a query."""
MAX_ROWS = 10
MAX_STEPS = 100_000
"""Maximum number of instructions of SQLite's machine for one query."""
UNITS = {
    "mm": ("length", Fraction(1, 1000)),
    "cm": ("length", Fraction(1, 100)),
    "m": ("length", Fraction(1)),
    "km": ("length", Fraction(1000)),
    "g": ("mass", Fraction(1, 1000)),
    "kg": ("mass", Fraction(1)),
    "t": ("mass", Fraction(1000)),
    "s": ("time", Fraction(1)),
    "min": ("time", Fraction(60)),
    "h": ("time", Fraction(3600)),
}
"""Quantity and size of each unit."""
COLUMNS = ("price", "weight", "stock")
"""Columns of the table of items."""
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS = {"abs", "avg", "count", "length", "lower", "max", "min", "round", "sum", "total", "upper"}
"""SQL functions that a query may use; others depend on time or chance, or need much memory."""


class ToolError(Exception):
    """A call is wrong; the text tells the policy why."""


class Toolbox:
    """The tools of one task, with its table of items and its database of people."""

    def __init__(self, items: Mapping[str, Mapping[str, int]], people: Sequence[tuple[str, int, str]]) -> None:
        self._items = items
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE TABLE people (name TEXT, age INTEGER, city TEXT)")
        self._database.executemany("INSERT INTO people VALUES (?, ?, ?)", people)
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        self._database.set_authorizer(_authorize)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of a call as text. Raise `ToolError` for a wrong one."""
        tool = {"calculator": calculate, "lookup": self.look_up, "convert": convert, "sql": self.query}.get(name)
        schema = next((one.function.parameters for one in TOOLS if one.function.name == name), None)
        if tool is None or schema is None:
            raise ToolError(f"no tool {name:.30}: {', '.join(one.function.name for one in TOOLS)}")
        if arguments.keys() != schema["properties"].keys():
            raise ToolError(f"{name} takes {', '.join(schema['properties'])}")
        return tool(**arguments)

    def close(self) -> None:
        self._database.close()

    def look_up(self, item: Any, column: Any) -> str:
        """Return a value of the table."""
        if not isinstance(item, str) or item not in self._items:
            raise ToolError(f"no item {item!r:.30}: {', '.join(self._items)}")
        if not isinstance(column, str) or column not in COLUMNS:
            raise ToolError(f"no column {column!r:.30}: {', '.join(COLUMNS)}")
        return str(self._items[item][column])

    def query(self, query: Any) -> str:
        """Return the rows that a query reads, one per line. SQLite refuses all other statements."""
        if not isinstance(query, str) or len(query) > MAX_CHARACTERS:
            raise ToolError(f"a query is a text of at most {MAX_CHARACTERS} characters")
        self._database.set_progress_handler(lambda: True, MAX_STEPS)
        try:
            rows = self._database.execute(query).fetchmany(MAX_ROWS)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(str(error)[:100]) from None
        return "\n".join(", ".join(str(value)[:100] for value in row) for row in rows) or "no rows"


def calculate(expression: Any) -> str:
    """Return the value of an expression with `+`, `-`, `*`, `/` and parentheses."""
    if not isinstance(expression, str) or len(expression) > MAX_CHARACTERS:
        raise ToolError(f"an expression is a text of at most {MAX_CHARACTERS} characters")
    try:
        return _written(_value(ast.parse(expression.strip(), mode="eval").body))
    except (ZeroDivisionError, OverflowError):
        raise ToolError("division by zero, or a number that is too large") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError("not an expression of numbers with + - * / and parentheses") from None


def convert(value: Any, unit: Any, to: Any) -> str:
    """Return a quantity in another unit."""
    for one in (unit, to):
        if not isinstance(one, str) or one not in UNITS:
            raise ToolError(f"no unit {one!r:.30}: {', '.join(UNITS)}")
    (quantity, size), (other, target) = UNITS[unit], UNITS[to]
    if quantity != other:
        raise ToolError(f"{unit} is a unit of {quantity}, {to} of {other}")
    if not re.fullmatch(r"-?\d{1,12}(\.\d{1,12})?", str(value)):
        raise ToolError(f"the value {value!r:.30} is not a number")
    return _written(Fraction(str(value)) * size / target)


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError(ast.dump(node))


def _written(value: Fraction) -> str:
    """Return a number without a fraction if it is whole, else with at most six digits after the point."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.6f}".rstrip("0").rstrip(".")


def _authorize(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    computes = action == sqlite3.SQLITE_FUNCTION and name is not None and name.lower() in _FUNCTIONS
    return sqlite3.SQLITE_OK if reads or computes else sqlite3.SQLITE_DENY


def _tool(name: str, description: str, **properties: Any) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return Tool(function=Function(name=name, description=description, parameters=parameters))


_TEXT, _UNIT = {"type": "string"}, {"type": "string", "enum": [*UNITS]}
TOOLS = [
    _tool("calculator", "Value of an expression of numbers.", expression=_TEXT),
    _tool("lookup", "Value in the table of items.", item=_TEXT, column={"type": "string", "enum": [*COLUMNS]}),
    _tool("convert", "A quantity in another unit.", value={"type": "number"}, unit=_UNIT, to=_UNIT),
    _tool("sql", "Rows of a SQLite query on the table people (name, age, city).", query=_TEXT),
]
