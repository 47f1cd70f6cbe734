"""Columns of the Parquet table: a field of a record that has no column would be lost in silence."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from msgspec import inspect
from msgspec.structs import replace

from quartet.exchange.parquet import ParquetWriter, read_parquet
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.types import Done, Observation, Purpose, TakenAction, Task
from tests.ledger.samples import recipe, trajectory

SPREAD = {"trajectory", "task", "provenance", "fingerprint"}
"""Structs of a record whose fields are columns of the table."""


def structs_in(kind: inspect.Type) -> list[inspect.StructType]:
    """The structs that a value of this type is or contains."""
    match kind:
        case inspect.StructType():
            return [kind]
        case inspect.UnionType(types):
            return [found for one in types for found in structs_in(one)]
        case inspect.ListType(item):
            return structs_in(item)
    return []


def columns_of(column: Any) -> dict[str, Any]:
    """The columns of a struct or of a list of structs; empty for another type, such as a text that holds all fields."""
    while pyarrow.types.is_list(column):
        column = column.value_type
    return {one.name: one.type for one in column} if pyarrow.types.is_struct(column) else {}


def fields_without_a_column(kind: inspect.StructType, columns: dict[str, Any]) -> Iterator[str]:
    """Names of fields, each after those of its structs."""
    for field in kind.fields:
        spread = field.name in SPREAD
        if not spread and field.name not in columns:
            yield field.name
            continue
        below = columns if spread else columns_of(columns[field.name])
        for one in structs_in(field.type) if below else []:
            yield from (f"{field.name}.{name}" for name in fields_without_a_column(one, below))


@pytest.fixture
def table() -> tuple[io.BytesIO, ParquetWriter]:
    file = io.BytesIO()
    return file, ParquetWriter(file, recipe())


def test_every_field_of_a_record_has_a_column(table):
    file, writer = table
    writer.finish()
    columns = {field.name: field.type for field in pyarrow.parquet.read_schema(file)}
    record = inspect.type_info(TrajectoryRecord)
    assert isinstance(record, inspect.StructType)
    assert [*fields_without_a_column(record, columns)] == []


def test_guidance_and_the_actions_of_an_expert_in_the_reset_are_read_back(table, tmp_path):
    prepared = [TakenAction(action=Done(answer="4"), canonical='done "4"', points=[(1.0, 2.0)])]
    seen = Observation(goal="g", text="t", guidance="Press it.", prepared=prepared)
    plain = trajectory(Task(env="bandit", family="left", seed=0))
    told = replace(plain, turns=[replace(plain.turns[0], observation=seen)], final_observation=seen)
    origin = Provenance(run="r", purpose=Purpose.TRAIN, rollout_id=1, group_id=1, attempt=1, created_at=0.0)
    file, writer = table
    writer.write(TrajectoryRecord.of(told, origin, None))
    writer.finish()
    (tmp_path / "x.parquet").write_bytes(file.getvalue())
    [(_, record)] = read_parquet(tmp_path / "x.parquet")
    assert record.trajectory == told
