"""Validity of a JSON answer under a JSON Schema."""

import json
from typing import Any, NoReturn

from quartet.config.section import Section
from quartet.env.dataset.answers import unfenced
from quartet.env.rewards.base import Case, Reward
from quartet.errors import RewardError, SetupError

DEEP = 20
"""Levels of nesting of an answer above which it, and not the schema, is at fault for a recursion without end."""


class JsonSchema(Reward):
    """1 if the answer is JSON that is valid under the schema, else 0. Needs `jsonschema` (extra `rewards`).

    Markdown's code fence around the JSON is left out. A schema cannot refer to files or addresses.
    """

    class Settings(Section):
        column: str = "schema"
        """Column of the schema, as JSON text or as a table."""

    settings: Settings

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        try:
            import jsonschema.validators
            from jsonschema_specifications import REGISTRY
            from referencing.exceptions import Unresolvable
        except ImportError as error:
            raise SetupError(
                "the reward json_schema needs the package jsonschema", "pip install 'quartet-rl[rewards]'"
            ) from error
        self._library: Any = jsonschema
        self._known, self._unresolvable = REGISTRY, Unresolvable  # the drafts of JSON Schema; it reads nothing else

    def score(self, case: Case) -> float:
        schema = case.gold(self.settings.column)
        try:
            schema = json.loads(schema) if isinstance(schema, str) else schema
            validator = self._library.validators.validator_for(schema)
            validator.check_schema(schema)
        except (ValueError, self._library.SchemaError) as error:
            raise RewardError(f"cannot read the row's schema: {error!s:.80}", "mend the row") from error
        try:
            answer = json.loads(unfenced(case.answer), parse_constant=_refuse)
        except (ValueError, RecursionError):
            return 0.0
        try:
            return float(validator(schema, registry=self._known).is_valid(answer))
        except OverflowError:  # of a number such as 1e999 that must be a multiple of a fraction
            return 0.0
        except RecursionError as error:
            if _depth(answer) > DEEP:
                return 0.0
            raise RewardError("the row's schema refers to itself without end", "mend the row") from error
        except self._unresolvable as error:
            raise RewardError(
                f"the row's schema refers to {error.ref!r:.80}, which is not part of it", "put it under $defs"
            ) from error


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{constant} is not JSON")


def _depth(value: Any) -> int:
    """Return the levels of nesting of lists and tables."""
    depth, level = 0, [value]
    while level := [
        member
        for each in level
        if isinstance(each, list | dict)
        for member in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth
