"""Reader of files with one JSON object per line, with line numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from quartet.errors import ConfigError


def read_lines(path: Path, kind: Any, name: str, advice: str) -> Iterator[tuple[int, Any]]:
    """Yield line numbers, from 1, and decoded lines, without empty lines.

    Raise `ConfigError` with `advice` for a line that is not of type `kind`; `name` is the type's name in the message.
    """
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield number, decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{path}:{number} is not a {name}: {error}", advice) from error
