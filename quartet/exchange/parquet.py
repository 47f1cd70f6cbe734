"""Trajectories as a Parquet table, for data frames: one row each, with calls and turns as lists of structs."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import msgspec

from quartet.config import Recipe
from quartet.errors import ConfigError, SetupError
from quartet.exchange.base import Writer
from quartet.exchange.format_1 import FormerRecord, current
from quartet.exchange.record import TrajectoryRecord
from quartet.types import Trajectory

_ROWS_PER_GROUP = 200
_PARTS = {
    "task": ("env", "family", "seed", "params"),
    "provenance": ("run", "purpose", "rollout_id", "group_id", "attempt", "created_at"),
    "fingerprint": ("tokenizer_hash", "chat_template_hash", "observation_hash"),
}
"""Names of structs in a record -> names of their fields, each of which becomes a column of the table."""


class ParquetWriter(Writer):
    """Writer of row groups of 200 trajectories, compressed with Zstandard."""

    takes_screenshots = True

    def __init__(self, file: BinaryIO, recipe: Recipe, limit: int | None = None) -> None:
        """Begin the file. Raise `SetupError` if pyarrow is not installed."""
        super().__init__(file, recipe, limit)
        self._arrow = _pyarrow()
        self._schema = _schema(self._arrow)
        self._writer = self._arrow.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, record: TrajectoryRecord) -> None:
        self._rows.append(_to_row(record))
        if len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def finish(self) -> None:
        """Write the last rows and the footer, which a valid file needs."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
        self._rows = []


def read_parquet(path: Path) -> Iterator[tuple[int, TrajectoryRecord]]:
    """Yield row numbers, from 1, and records. Raise `ConfigError` for a file that Quartet did not write."""
    for number, row in enumerate(_rows(path), start=1):
        try:
            record = _from_row(row)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path}: row {number} is not a trajectory: {error}", "see docs/exchange.md for the columns"
            ) from error
        yield number, record


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    arrow = _pyarrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            yield from chain.from_iterable(batch.to_pylist() for batch in file.iter_batches(_ROWS_PER_GROUP))
    except (arrow.ArrowException, OSError) as error:
        raise ConfigError(
            f"cannot read {path} as Parquet: {error}",
            "give a file written by `quartet ledger export --format parquet`",
        ) from error


def _to_row(record: TrajectoryRecord) -> dict[str, Any]:
    row = msgspec.to_builtins(record, builtin_types=(bytes,))
    row = row.pop("trajectory") | row
    for part in _PARTS:
        row |= row.pop(part) or {}
    for turn in row["turns"]:
        turn["rewards"] = list(turn.get("rewards", {}).items())
    for taken in _taken(row):
        taken |= {"action": _text(taken["action"])} if "action" in taken else {}
    for seen in _observations(row):
        seen |= {"tools": _text(seen["tools"])} if "tools" in seen else {}
    return row | {"params": _text(row["params"]), "rewards": list(row["rewards"].items())}


def _from_row(row: dict[str, Any]) -> TrajectoryRecord:
    row = _without_nulls(row) | {"params": msgspec.json.decode(row["params"]), "rewards": dict(row["rewards"])}
    for turn in row["turns"]:
        turn["rewards"] = dict(turn.get("rewards", []))
    for taken in _taken(row):
        taken |= {"action": msgspec.json.decode(taken["action"])} if "action" in taken else {}
    for seen in _observations(row):
        seen |= {"tools": msgspec.json.decode(seen["tools"])} if "tools" in seen else {}
    row |= {part: {name: row.pop(name) for name in names if name in row} for part, names in _PARTS.items()}
    row["fingerprint"] = row["fingerprint"] or None
    if row["format"] == TrajectoryRecord.__struct_config__.tag:
        own = {name: row.pop(name) for name in Trajectory.__struct_fields__ if name in row}
        row["trajectory"] = own
    return current(msgspec.convert(row, TrajectoryRecord | FormerRecord, builtin_types=(bytes,)))


def _observations(row: dict[str, Any]) -> list[dict[str, Any]]:
    final = row.get("final_observation")
    return [turn["observation"] for turn in row["turns"]] + ([final] if final else [])


def _taken(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the actions of the policy, and those of an expert in the reset."""
    for turn in row["turns"]:
        yield from turn.get("actions", [])
    for seen in _observations(row):
        yield from seen.get("prepared", [])


def _text(value: Any) -> str:
    """Return a value as JSON text, since its structure varies between rows."""
    return msgspec.json.encode(value).decode()


def _without_nulls(value: Any) -> Any:
    """Return a value without nulls. A field is null in the table if the record omits it, because it has its default."""
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _pyarrow() -> ModuleType:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SetupError("Parquet needs pyarrow", "pip install 'quartet-rl[parquet]'") from error
    return pyarrow


def _schema(pa: Any) -> Any:
    """Return the schema, with the names and types of `record.py`.

    Numbers that must be read back exactly are as wide as Python's.
    """
    text, whole, number = pa.string(), pa.int64(), pa.float64()
    sampling = {"temperature": number, "top_k": whole, "top_p": number, "min_tokens": whole, "max_tokens": whole}
    sampling |= {"seed": whole}
    response = {
        "token_ids": pa.list_(pa.int32()),
        "logprobs": pa.list_(number),
        "versions": pa.list_(whole),
        "entropies": pa.list_(number),
        "cache_versions": pa.list_(whole),
        "top_ids": pa.list_(pa.list_(pa.int32())),
        "top_logprobs": pa.list_(pa.list_(number)),
    }
    media = {"content_hash": text, "offset": whole, "num_placeholders": whole, "processor": text}
    media |= {"grid": pa.list_(whole), "resized": pa.list_(whole)}
    call = {
        "key": text,
        "policy": text,
        "prompt_ids": pa.list_(pa.int32()),
        "train_prompt_ids": pa.list_(pa.int32()),
        "borrowed": whole,
        "media": pa.list_(_struct(pa, media)),
        "response": _struct(pa, response),
        "sampling": _struct(pa, sampling),
        "finish_reason": text,
    }
    picture = {"content_hash": text, "data": pa.binary()}
    action = {"action": text, "canonical": text, "outcome": text, "error": text}
    action |= {"points": pa.list_(pa.list_(number))}
    observation = {"goal": text, "text": text, "guidance": text, "error": text}
    observation |= {"pictures": pa.list_(_struct(pa, picture)), "prepared": pa.list_(_struct(pa, action))}
    observation |= {"messages": pa.list_(_struct(pa, {"role": text, "content": text, "name": text})), "tools": text}
    turn = {
        "observation": _struct(pa, observation),
        "call_index": whole,
        "response": text,
        "actions": pa.list_(_struct(pa, action)),
        "rewards": pa.map_(text, number),
    }
    fork = {"rollout_id": whole, "part": text, "call_index": whole}
    columns = {
        "format": text,
        **{"env": text, "family": text, "seed": whole, "params": text},
        **{"status": text, "success": pa.bool_(), "reward": number, "rewards": pa.map_(text, number)},
        "calls": pa.list_(_struct(pa, call)),
        "turns": pa.list_(_struct(pa, turn)),
        "final_observation": _struct(pa, observation),
        **{"error": text, "traceback": text, "wall_seconds": number},
        **{"policy": text, "role": text, "part": text, "parent": _struct(pa, fork)},
        **{"run": text, "purpose": text, "rollout_id": whole, "group_id": whole, "attempt": whole},
        "created_at": number,
        **{"tokenizer_hash": text, "chat_template_hash": text, "observation_hash": text},
    }
    return pa.schema(list(columns.items()))


def _struct(pa: Any, fields: dict[str, Any]) -> Any:
    return pa.struct(list(fields.items()))
