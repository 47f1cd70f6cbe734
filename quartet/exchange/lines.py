"""Files of one JSON object per line, read with the number of each line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from quartet.errors import ConfigError


def read_lines(path: Path, kind: Any, name: str, advice: str) -> Iterator[tuple[int, Any]]:
    """Line numbers, from 1, and what stands there; empty lines are skipped. Raises `ConfigError` that names the line
    that is no `kind`, a `name` to users, with `advice`."""
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield number, decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{path}:{number} is no {name}: {error}", advice) from error
