"""Rows of a data set: a JSONL, JSON or Parquet file, or a folder of such files, of the library `datasets`, or of the
Hugging Face Hub."""

import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from quartet import config
from quartet.config.running import SELECTION_OFFSET
from quartet.env.dataset.readers import ADVICE, READERS
from quartet.errors import ConfigError

T = TypeVar("T")
Row = dict[str, Any]
FIRST_HELD_OUT_SEED: int = config.Evaluation().first_seed
TRAINING = ("train", "training")
"""First words of the names of a folder's split for training."""
HELD_OUT = ("test", "validation", "valid", "val", "dev", "eval", "evaluation")
"""First words of the names of a folder's held-out splits; the first split that exists is used for evaluation."""
STATE = "state.json"
"""File that lists the data files of a folder of `Dataset.save_to_disk`."""
METADATA = {"dataset_dict.json", "dataset_info.json", "dataset_infos.json", STATE}
"""Files of the library `datasets` and of the Hub that describe a data set and hold no rows."""


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

    Raise `ConfigError` if there is no data set there, a row is not a table, there are no rows of both sorts, a file for
    training seems to be a held-out split, or several data sets have a split for training.
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
        _refuse_hidden_splits(data, files)
    if not files:
        raise ConfigError(
            f"all files of env.data = {data} are held out, so none is left for training",
            "name other files in env.held_out, or give env.data a split train",
        )
    training, held_out_rows = list(_rows(files)), list(_rows(given))
    if not given:
        training, held_out_rows = split(training, held_out_share)
    if not training or not held_out_rows:
        change = "" if given else f", or {_other_share([*training, *held_out_rows], raised=not held_out_rows)}"
        raise ConfigError(
            f"{data} has {len(training)} rows for training and {len(held_out_rows)} for evaluation",
            f"set env.held_out to another file{change}",
        )
    return Rows(training, held_out_rows)


def split(rows: list[Row], held_out_share: float) -> Rows:
    """Hold out a share of the rows, chosen by a hash of their content."""
    held_out = [row for row in rows if _fraction(row) < held_out_share]
    return Rows([row for row in rows if _fraction(row) >= held_out_share], held_out)


def _other_share(rows: list[Row], *, raised: bool) -> str:
    """Return the advice to a share of which neither part is empty: rows are held out whose hash is below the share."""
    fractions = sorted(map(_fraction, rows))
    if not fractions or fractions[0] == fractions[-1]:
        return "give env.data more rows"
    if raised:
        return f"raise env.held_out_share to {math.floor(100 * fractions[0] + 1) / 100:g}"
    return f"lower env.held_out_share to {math.floor(100 * fractions[-1]) / 100:g}"


def _splits(data: Path) -> dict[str, list[Path]]:
    """Return the files and folders of a folder's splits by the first word of their names, in lower case. A folder that
    has neither splits nor data files of its own, such as a snapshot of the Hub, has those of its folders.

    Raise `ConfigError` if several of these have a split for training.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    entries = _entries(data) if data.is_dir() else []
    for path in entries:
        found[_words(path)[0]].append(path)
    if found.keys() & {*TRAINING, *HELD_OUT} or any(path.is_file() for path in entries):
        return found
    within = {folder: _splits(folder) for folder in entries if not (folder / STATE).is_file()}
    if len(several := [folder for folder, splits in within.items() if splits.keys() & {*TRAINING}]) > 1:
        raise ConfigError(
            f"{data} has several data sets: {', '.join(folder.name for folder in several)}",
            f"name one of them, such as env.data = {str(several[0])!r}",
        )
    for splits in within.values():
        for name, places in splits.items():
            found[name] += places
    return found


def _entries(folder: Path) -> list[Path]:
    """Return the data files and folders in a folder, without hidden ones and files of metadata."""
    return sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and (path.is_dir() or (path.suffix in READERS and path.name not in METADATA))
    )


def _words(path: Path) -> list[str]:
    return re.findall(r"[a-z]+", path.stem.lower()) or [""]


def _refuse_hidden_splits(data: Path, files: list[Path]) -> None:
    """Raise `ConfigError` if the last word of the name of a file, or of a folder around it, is that of a held-out
    split, since the file would be trained on."""
    for place in chain.from_iterable(takewhile(lambda one: one != data, (file, *file.parents)) for file in files):
        if _words(place)[-1] in HELD_OUT:
            raise ConfigError(
                f"{place} may be the split {_words(place)[-1]!r}, but its name begins with another word, so it would "
                "be trained on",
                "name it in env.held_out, or give env.data a file",
            )


def _rows(files: list[Path]) -> Iterator[Row]:
    for file in files:
        reader = READERS.get(file.suffix)
        if reader is None:
            raise ConfigError(f"{file} is neither JSON nor Parquet", ADVICE)
        for number, row in enumerate(reader(file), 1):
            if not isinstance(row, dict):
                raise ConfigError(f"{file}: row {number} is not an object", "write every row as one JSON object")
            if large := [column for column, value in row.items() if not _fits(value)]:
                raise ConfigError(
                    f"{file}: row {number} has an integer of more than 64 bits in the column {large[0]!r}, which no "
                    "reward can be sent",
                    "write it as text",
                )
            yield row


def _fits(value: Any) -> bool:
    """Return whether the integers in a value fit the message to a reward's process."""
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        return False
    return True


def _files(places: list[Path]) -> list[Path]:
    """Return the data files of files and folders. Raise `ConfigError` if one of them is missing or has none."""
    return [file for place in places for file in _files_of(place)]


def _files_of(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    found = _files_within(place) if place.is_dir() else []
    if not found:
        raise ConfigError(f"{place} has no data files", ADVICE)
    return found


def _files_within(folder: Path) -> list[Path]:
    """Return the data files of a folder; those of its folders if it has none of its own."""
    state = folder / STATE
    if state.is_file():
        return [folder / entry["filename"] for entry in json.loads(state.read_text())["_data_files"]]
    entries = _entries(folder)
    own = [path for path in entries if path.is_file()]
    return own or [file for place in entries for file in _files_within(place)]


def _fraction(row: Row) -> float:
    """Return a number in [0, 1) that depends only on the row's content, so that equal rows are in the same split."""
    content = msgspec.json.encode(row, order="sorted")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) / 2**64
