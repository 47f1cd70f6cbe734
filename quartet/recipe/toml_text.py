"""TOML as people write it: read with errors that show the line, and written value by value."""

import json
import re
import tomllib
from math import isfinite
from pathlib import Path
from typing import Any

from quartet.errors import ConfigError, shortened


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file. Raises `ConfigError` that shows the line which cannot be read."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")  # editors of Windows begin a file with a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} is no UTF-8 text: byte {error.start}, in line {line}", "save it as UTF-8") from error
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        advice = "a recipe has sections, and values or lists in them"
        raise ConfigError(f"{path} is nested too deeply", advice) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", _toml_advice(text, str(error))) from error


def _toml_advice(text: str, error: str) -> str:
    """Return the line that cannot be read, and what is usual in a recipe."""
    at = re.search(r"at line (\d+)", error)
    lines = text.splitlines()
    number = int(at[1]) if at else len(lines)
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return (
        f"line {number} is {shortened(line)!r}; a recipe has [sections] and lines like max_turns = 10 or "
        'name = "miniwob", texts between quotes; `quartet init` writes one'
    )


def toml_value(value: Any) -> str:
    """Write a value as TOML. Strings, numbers, booleans and lists are JSON's, but for the delete character."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # TOML writes inf and nan, which JSON has not
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
