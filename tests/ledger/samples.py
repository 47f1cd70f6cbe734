"""Plans, trajectories and a clock for the tests of the data manager."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
import zstandard
from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.config import Recipe
from quartet.ledger import AppendOutcome, Ledger
from quartet.ledger.schema import blobs, trajectories
from quartet.manager.manager import DataManager
from quartet.recipe.file import parse_recipe
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import (
    Call,
    EpisodeState,
    FinishReason,
    Move,
    Observation,
    Picture,
    Purpose,
    ReplayRule,
    RolloutLease,
    RolloutPlan,
    Sampling,
    Status,
    StepResult,
    Task,
    TokenColumns,
    Trajectory,
    Turn,
)

on_sqlite = pytest.mark.parametrize("url", [""], ids=["sqlite"])
"""For tests of the file itself."""


class FakeClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def plan(family: str = "left", *, rollouts: int = 2, purpose: Purpose = Purpose.TRAIN, tag: str = "") -> RolloutPlan:
    task = Task(env="bandit", family=family, seed=1, params={"turns": 1})
    return RolloutPlan(task=task, num_rollouts=rollouts, max_turns=3, purpose=purpose, tag=tag)


def trajectory(
    task: Task,
    *,
    reward: float = 0.0,
    status: Status = Status.COMPLETED,
    versions: tuple[int, ...] = (0,),
    screenshot: bytes | None = None,
    turns: int = 1,
) -> Trajectory:
    """`turns` times a call whose tokens were sampled by `versions`; none at all for an infrastructure error."""
    if status.retried:
        return Trajectory(task=task, status=status, calls=[], turns=[], rewards={}, success=False, error="host gone")
    ids = list(range(len(versions)))
    call = Call(
        prompt_ids=[7, 8, 9],
        response=TokenColumns(
            token_ids=ids,
            logprobs=[-0.5 for _ in ids],
            versions=list(versions),
        ),
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )
    seen = Observation(goal="Pull.", text="button left [1]", pictures=[Picture(data=screenshot)] if screenshot else [])
    turn = Turn(observation=seen, call_index=0, response="click left [1]", actions=[taken_action("click left [1]")])
    return Trajectory(
        task=task,
        status=status,
        calls=[call] * turns,
        turns=[turn] * turns,
        rewards={"task": reward},
        success=reward == 1,
    )


def saw(lease: RolloutLease, *shown: bytes, final: bytes | None = None) -> Trajectory:
    """A trajectory whose turn and whose end show these pictures."""
    made = trajectory(lease.task, reward=1.0)
    seen = replace(made.turns[0].observation, pictures=[Picture(data=data) for data in shown])
    end = Observation(goal="", text="The end.", pictures=[Picture(data=final)]) if final else None
    return replace(made, turns=[replace(made.turns[0], observation=seen)], final_observation=end)


def finish(ledger: Ledger, lease: RolloutLease, *, max_attempts: int = 3, **fields) -> AppendOutcome:
    return ledger.trajectories.append(lease, trajectory(lease.task, **fields), max_attempts)


def conversation(count: int = 2) -> list[Call]:
    """A conversation that grows: each prompt is all that came before it, and two tokens of observation."""
    said: list[Call] = []
    for number in range(count):
        prompt = [*said[-1].prompt_ids, *said[-1].response_ids, 50, 51] if said else [7, 8, 9]
        tokens = TokenColumns(token_ids=[number, 3], logprobs=[-0.5, -0.1], versions=[0, 0])
        said.append(
            Call(
                key=str(number),
                prompt_ids=prompt,
                response=tokens,
                sampling=Sampling(),
                finish_reason=FinishReason.STOP,
            )
        )
    return said


def episode_state(num_bytes: int = 100) -> EpisodeState:
    """Random bytes, so that compression does not shrink them."""
    page = Observation(goal="Pull.", text="page 1", pictures=[Picture(data=b"png")])
    first = StepResult(observation=page, reward=0.0, terminated=False)
    second = StepResult(observation=replace(page, text="page 2"), reward=0.5, terminated=False, info={"depth": 1})
    return EpisodeState(snapshot=os.urandom(num_bytes), moves=[Move(None, first), Move("click left [1]", second)])


def finish_with_calls(ledger: Ledger, lease: RolloutLease, **fields) -> AppendOutcome:
    """Two calls, as a child has them that was forked after the first one."""
    record = replace(trajectory(lease.task, **fields), calls=conversation(), parent=lease.parent)
    return ledger.trajectories.append(lease, record, 3)


def trainable_group(ledger: Ledger, *, family: str = "left", versions: tuple[int, ...] = (0,), **fields) -> int:
    """A group of two with rewards 0 and 1 that waits for the trainer."""
    group_id = ledger.groups.admit(plan(family))
    for lease in ledger.rollouts.claim("w", 2, 60):
        finish(ledger, lease, reward=float(lease.index), versions=versions, **fields)
    ledger.groups.close(group_id)
    ledger.groups.make_trainable(group_id, [m.rollout_id for m in ledger.groups.load(group_id).members], 2)
    return group_id


def recipe(**sections: Any) -> Recipe:
    """Batches of two groups of two, four sessions, at most one version of lag; `sections` are merged over it."""
    data: dict = {
        "name": "test",
        "model": {"path": "unused"},
        "env": {"name": "bandit", "families": ["named", "fixed"], "sessions": 4},
        "control": {"sampler": "uniform", "rollouts_per_group": 2},
        "admission": {"max_lag": 1},
        "filters": ["mixed_outcome"],
        "train": {"groups_per_batch": 2},
        "disk": {"min_free_megabytes": 1},
    }
    for section, values in sections.items():
        data[section] = data.get(section, {}) | values if isinstance(values, dict) else values
    return parse_recipe(data, "test")


@contextmanager
def manager_of(recipe: Recipe, ledger: Ledger) -> Iterator[DataManager]:
    """A data manager; make another one on the same ledger to restart it."""
    recorder = Recorder(ledger.run_dir, "manager")
    try:
        yield DataManager(recipe, ledger, recorder, Presence(ledger.modules, "manager", interval_seconds=0))
    finally:
        recorder.close()


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """Record the SQL statements of this process, each with its parameters, except prepared ones."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def spoil(ledger: Ledger, *rollout_ids: int, missing: bool = False, data: bytes = b"damaged") -> list[str]:
    """Write `data` over the records of these rollouts where they lie, or remove them; returns the digests."""
    query = sa.select(trajectories.c.blob).where(trajectories.c.rollout_id.in_(rollout_ids))
    with ledger.db.write() as connection:
        digests = list(connection.execute(query).scalars())
        mine = blobs.c.digest.in_([bytes.fromhex(digest) for digest in digests])
        change = sa.delete(blobs) if missing else sa.update(blobs).values(data=data)
        assert connection.execute(change.where(mine)).rowcount
    return digests


def bomb(declared_bytes: int) -> bytes:
    """The first 1 MB of compressed zeros, after a header that declares so many bytes; -1 declares none."""
    packer = zstandard.ZstdCompressor().compressobj(size=declared_bytes)
    return packer.compress(bytes(1 << 20)) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


def unguard(ledger: Ledger, *tables: str) -> None:
    """Take the database's own guard off, as only a stranger would."""
    with ledger.db.write() as connection:
        for table in tables:
            on = f" ON {table}" if connection.dialect.name == "postgresql" else ""
            connection.exec_driver_sql(f"DROP TRIGGER {table}_guard{on}")


def tamper(ledger: Ledger, statement: str) -> None:
    """Plain SQL, past every check of the program."""
    with ledger.db.write() as connection:
        connection.exec_driver_sql(statement)


def group_joined_by(ledger: Ledger, stored: int) -> int:
    """Admit a group of one rollout, finish it, and let it be trained together with a stored success. Return the id of
    its own rollout."""
    group_id = ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    finish(ledger, lease)
    ledger.groups.close(group_id)
    ledger.groups.make_trainable(group_id, [lease.rollout_id], 1, replayed={stored: ReplayRule.STORED})
    return lease.rollout_id
