"""TOML reader with errors that show the line, and writer of values."""

import json
import re
import tomllib
from math import isfinite
from pathlib import Path
from typing import Any

from quartet.errors import ConfigError, shortened


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file. Raise `ConfigError` that shows the invalid line."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")  # editors on Windows write a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} is not UTF-8: byte {error.start}, in line {line}", "save it as UTF-8") from error
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        advice = "write sections with values or lists"
        raise ConfigError(f"{path} is nested too deeply", advice) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", _toml_advice(text, str(error))) from error


def _toml_advice(text: str, error: str) -> str:
    """Return the invalid line and the usual form of a recipe."""
    at = re.search(r"at line (\d+)", error)
    lines = text.splitlines()
    number = int(at[1]) if at else len(lines)
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return (
        f"line {number} is {shortened(line)!r}; a recipe has [sections] and lines like max_turns = 10 or "
        'name = "miniwob", with text in quotes; `quartet init` writes a recipe'
    )


def toml_value(value: Any) -> str:
    """Write a value as TOML. Strings, numbers, booleans and lists are written as JSON, except the delete character."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and not isfinite(value):
        return str(value)  # TOML has inf and nan, JSON does not
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(key: str) -> str:
    """Write a key as TOML: bare if TOML allows it, else quoted."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)
