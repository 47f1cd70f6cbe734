"""Reader of files with one JSON object per line, with line numbers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from quartet.errors import ConfigError


def read_lines(path: Path, decode: Callable[[bytes], Any], name: str, advice: str) -> Iterator[tuple[int, Any]]:
    """Yield line numbers, from 1, and decoded lines, without empty lines.

    Raise `ConfigError` with `advice` for a line that `decode` rejects, or with the advice of `decode`'s own
    `ConfigError`; `name` is the line's type in the message for one of another type.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield number, decode(line)
            except ConfigError as error:
                raise ConfigError(f"{path}:{number}: {error.what}", error.advice) from error
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ConfigError(f"{path}:{number} is not a {name}: {error}", advice) from error
            except ValueError as error:
                raise ConfigError(f"{path}:{number}: {error}", advice) from error
