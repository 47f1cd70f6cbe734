"""Damage to the files of a policy: to their bytes, and to what a JSON file says."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

VALUES: list[Any] = [None, True, -1, 0, 1, 3, 10**9, 1e300, "", "x", [], [1, "x"], {}, {"x": [None]}]
"""What takes the place of a value: other types, other sizes."""


def damage_bytes(content: bytes, rng: Random) -> bytes:
    """Cut, emptied, zeroed in part, or with one bit flipped; never the same as before."""
    place = rng.randrange(len(content))
    kind = rng.choice(("cut", "empty", "zeroed", "flipped"))
    if kind == "cut":
        return content[:place]
    if kind == "empty":
        return b""
    if kind == "zeroed":
        return content[:place] + bytes(len(content) - place) if any(content[place:]) else b""
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def damage_json(content: bytes, rng: Random) -> bytes:
    """One value is missing, or another one stands in its place; sometimes the bytes themselves are damaged."""
    if rng.random() < 0.2:
        return damage_bytes(content, rng)
    document = json.loads(content)
    holder, key = rng.choice(list(_places(document)))
    if isinstance(holder, dict) and rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = rng.choice([value for value in VALUES if value != holder[key]])
    return json.dumps(document).encode()


def damage(file: Path, rng: Random) -> None:
    """Damage one file in place."""
    content = file.read_bytes()
    file.write_bytes((damage_json if file.suffix == ".json" else damage_bytes)(content, rng))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, by what holds it; of a long list or table the first few."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys[:20]:
        yield value, key
        yield from _places(value[key])
