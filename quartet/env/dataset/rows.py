"""Rows of a data set: a JSONL or Parquet file, or a folder of such files or of the library `datasets`."""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from quartet import config
from quartet.config.running import SELECTION_OFFSET
from quartet.errors import ConfigError, SetupError

T = TypeVar("T")
Row = dict[str, Any]
FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed
TRAINING = ("train", "training")
"""First words of the names of a folder's split for training."""
HELD_OUT = ("test", "validation", "valid", "val", "dev", "eval", "evaluation")
"""First words of the names of a folder's held-out splits; the first split that exists is used for evaluation."""
ADVICE = "give a .jsonl or .parquet file, or a folder of them or of datasets' `save_to_disk`"


class Rows(NamedTuple):
    """Rows for training, and rows for evaluation, which training does not draw."""

    training: list[Row]
    held_out: list[Row]


def drawn(training: Sequence[T], held_out: Sequence[T], seed: int) -> T:
    """Return the item of a task's seed. Selection seeds begin at the end of the held-out items, so that policies are
    chosen and reported on different ones, if there are enough."""
    place = seed - FIRST_HELD_OUT_SEED
    if place < 0:
        return training[seed % len(training)]
    if place >= SELECTION_OFFSET:
        place = SELECTION_OFFSET - 1 - place
    return held_out[place % len(held_out)]


@cache
def read_rows(data: Path, held_out: Path | None, held_out_share: float) -> Rows:
    """Read a data set. The held-out rows are those of `held_out`, else the test split of a folder, else a share of the
    rows, chosen by a hash of their content. Files of these rows and of every held-out split are not read for training.

    Raise `ConfigError` if there is no data set there, a row is not a table, there are no rows of both sorts, or a file
    for training seems to be a held-out split.
    """
    if not data.exists():
        raise ConfigError(f"there is no data set at {data}", ADVICE)
    splits = _splits(data)
    held_out_splits = [splits[name] for name in HELD_OUT if name in splits]
    given = _files([held_out] if held_out else next(iter(held_out_splits), []))
    left_out = {file.resolve() for file in [*given, *_files([place for split in held_out_splits for place in split])]}
    places = [place for name in TRAINING for place in splits.get(name, [])]
    files = [file for file in _files(places or [data]) if file.resolve() not in left_out]
    if not places and data.is_dir():
        _refuse_hidden_splits(files)
    if not files:
        raise ConfigError(
            f"all files of env.data = {data} are held out, so none is left for training",
            "name other files in env.held_out, or give env.data a split train",
        )
    training, held_out_rows = list(_rows(files)), list(_rows(given))
    if not given:
        training, held_out_rows = split(training, held_out_share)
    if not training or not held_out_rows:
        raise ConfigError(
            f"{data} has {len(training)} rows for training and {len(held_out_rows)} for evaluation",
            "set env.held_out to another file, or change env.held_out_share",
        )
    return Rows(training, held_out_rows)


def split(rows: list[Row], held_out_share: float) -> Rows:
    """Hold out a share of the rows, chosen by a hash of their content."""
    held_out = [row for row in rows if _fraction(row) < held_out_share]
    return Rows([row for row in rows if _fraction(row) >= held_out_share], held_out)


def _splits(data: Path) -> dict[str, list[Path]]:
    """Return the files and folders of a folder's splits by the first word of their names, in lower case."""
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(data.iterdir()) if data.is_dir() else []:
        if path.is_dir() or path.suffix in READERS:
            found[_words(path)[0]].append(path)
    return found


def _words(path: Path) -> list[str]:
    return re.findall(r"[a-z]+", path.stem.lower()) or [""]


def _refuse_hidden_splits(files: list[Path]) -> None:
    """Raise `ConfigError` if the last word of a file's name is that of a held-out split, since the file would be
    trained on."""
    for file in files:
        if _words(file)[-1] in HELD_OUT:
            raise ConfigError(
                f"{file} may be the split {_words(file)[-1]!r}, but its name begins with another word, so it would be "
                "trained on",
                "name it in env.held_out, or give env.data a file",
            )


def _rows(files: list[Path]) -> Iterator[Row]:
    for file in files:
        reader = READERS.get(file.suffix)
        if reader is None:
            raise ConfigError(f"{file} is neither JSONL nor Parquet", ADVICE)
        for number, row in enumerate(reader(file), 1):
            if not isinstance(row, dict):
                raise ConfigError(f"{file}: row {number} is not an object", "write one JSON object per line")
            yield row


def _files(places: list[Path]) -> list[Path]:
    """Return the data files of files and folders. Raise `ConfigError` if one of them is missing or has none."""
    return [file for place in places for file in _files_of(place)]


def _files_of(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    state = place / "state.json"  # written by `Dataset.save_to_disk`
    if state.is_file():
        return [place / entry["filename"] for entry in json.loads(state.read_text())["_data_files"]]
    found = sorted(path for path in place.iterdir() if path.suffix in READERS) if place.is_dir() else []
    if not found:
        raise ConfigError(f"{place} has no data files", ADVICE)
    return found


def _read_jsonl(file: Path) -> Iterator[Any]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError) as error:
                raise ConfigError(f"{file}: line {number} is not JSON: {error}", "write one object per line") from error


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


READERS = {".jsonl": _read_jsonl, ".json": _read_jsonl, ".parquet": _read_parquet, ".arrow": _read_arrow}


def _fraction(row: Row) -> float:
    """Return a number in [0, 1) that depends only on the row's content, so that equal rows are in the same split."""
    content = msgspec.json.encode(row, order="sorted")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) / 2**64
