"""Readers of files of rows, by their suffix: JSONL, JSON, Parquet, and Arrow of the library `datasets`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from quartet.errors import ConfigError, SetupError

ADVICE = "give a .jsonl, .json or .parquet file, or a folder of them, of datasets' `save_to_disk`, or of the Hub"
LINES = "write one object per line, or an array of objects in a .json file"
ARRAY_BYTES = 1024
"""Number of bytes of a .json file in which an array begins, after spaces."""


def _read_json(file: Path) -> Iterator[Any]:
    """Yield the elements of an array, or the lines of a file that begins otherwise."""
    with file.open("rb") as content:
        is_array = content.read(ARRAY_BYTES).lstrip().startswith(b"[")
    if not is_array:
        yield from _read_jsonl(file)
        return
    try:
        yield from msgspec.json.decode(file.read_bytes(), type=list[Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not a JSON array: {error}", "write one array of objects") from error


def _read_jsonl(file: Path) -> Iterator[Any]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise ConfigError(f"{file}: line {number} is not JSON: {error}", LINES) from error


def _read_parquet(file: Path) -> Iterator[Any]:
    parquet = _pyarrow(file).parquet
    with parquet.ParquetFile(file) as table:
        for batch in table.iter_batches():
            yield from (msgspec.to_builtins(row) for row in batch.to_pylist())


def _read_arrow(file: Path) -> Iterator[Any]:
    arrow = _pyarrow(file)
    with arrow.memory_map(str(file)) as source:
        for batch in arrow.ipc.open_stream(source):
            yield from (msgspec.to_builtins(row) for row in batch.to_pylist())


def _pyarrow(file: Path) -> Any:
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise SetupError(f"{file} cannot be read without pyarrow", "pip install 'quartet-rl[parquet]'") from error
    return pyarrow


READERS = {".jsonl": _read_jsonl, ".json": _read_json, ".parquet": _read_parquet, ".arrow": _read_arrow}
