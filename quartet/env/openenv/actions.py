"""Responses as actions of a server of OpenEnv, by the schema of its actions."""

import json
from collections.abc import Mapping
from typing import Any

from quartet.actions.error import ActionError

_OWN = {"metadata", "type"}
"""Fields of OpenEnv's base class of actions, which a policy does not write."""


class FieldReader:
    """Reader of responses: the whole text as one field, or a JSON object of all fields."""

    def __init__(self, schema: Mapping[str, Any], text_field: str) -> None:
        """Make a reader. `text_field` gets the whole response; if empty, the only required field of the schema, if it
        is a text, and otherwise responses are JSON."""
        properties = {name: one for name, one in schema.get("properties", {}).items() if name not in _OWN}
        needed = [name for name in schema.get("required", []) if name in properties]
        only, *others = needed or [*properties] or [""]
        is_text = not others and properties.get(only, {}).get("type") == "string"
        self.calls_tools = "tool_name" in properties
        self._text_field = text_field or (only if is_text and not self.calls_tools else "")
        self._known = properties
        kinds = [f"{name} ({_kind(one)}{'' if name in needed else ', optional'})" for name, one in properties.items()]
        self.usage = "" if self._text_field else f"a JSON object with {', '.join(kinds)}"
        if self.calls_tools:
            self.usage = "a call of a tool"

    def read(self, response: str) -> dict[str, Any]:
        """Return the fields of the action. Raise `ActionError` for a response without them."""
        if self._text_field:
            return {self._text_field: response}
        try:
            fields, _ = json.JSONDecoder().raw_decode(response[max(response.find("{"), 0) :])
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict) or fields.keys() - self._known.keys() or self.calls_tools:
            raise ActionError(f"no action: write {self.usage}")
        return fields


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the type of a field, or its choices."""
    if choices := schema.get("enum"):
        return " or ".join(map(json.dumps, choices))
    kinds = [str(one.get("type", "any type")) for one in schema.get("anyOf", [schema])]
    return " or ".join(kind for kind in kinds if kind != "null")
