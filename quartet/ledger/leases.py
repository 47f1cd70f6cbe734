"""Leases on rollouts: statements that match only while an attempt holds its lease, and the record `RolloutLease`.

A worker can change a rollout only while its attempt holds the lease. The attempt number increases with every claim.
"""

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.errors import LeaseLostError
from quartet.ledger.database.prepared import Prepared
from quartet.ledger.schema import groups, rollouts
from quartet.types import Fork, Purpose, RolloutLease, RolloutState, Task

MINE = sa.and_(rollouts.c.id == sa.bindparam("rollout_id"), rollouts.c.attempt == sa.bindparam("lease_attempt"))
HELD = sa.update(rollouts).where(MINE, rollouts.c.state == sa.literal_column(f"'{RolloutState.LEASED}'"))
"""Update that only matches while attempt `lease_attempt` of `rollout_id` holds the lease."""
IS_HELD = sa.select(rollouts.c.id).where(MINE, rollouts.c.state == RolloutState.LEASED)
RENEW = Prepared(HELD.values(deadline=sa.bindparam("until")))
_QUEUED = HELD.values(
    state=sa.literal_column(f"'{RolloutState.QUEUED}'"), worker=sa.literal_column("''"), deadline=sa.null()
)
RELEASE = Prepared(_QUEUED)
TRY_AGAIN = Prepared(_QUEUED.values(failures=rollouts.c.failures + sa.literal_column("1")))

_LEASES = sa.select(
    rollouts,
    *(
        groups.c[name]
        for name in ("env", "family", "task_seed", "params", "max_turns", "temperature", "tag", "policy", "leased_at")
    ),
).join(groups, rollouts.c.group_id == groups.c.id)


def queued(*, training: bool) -> sa.Select[Any]:
    """Select the queued rollouts, or only those of evaluations: evaluation first, then the oldest.

    Rollouts that another transaction is claiming are left out. The order is that of the names of the purposes, and of
    an index. If the purpose were a constant, PostgreSQL would read the table by id from its beginning, where all
    rollouts are finished, because it expects to find queued ones soon.
    """
    waiting = sa.select(rollouts.c.id).where(rollouts.c.state == RolloutState.QUEUED)
    if not training:
        waiting = waiting.where(rollouts.c.purpose <= Purpose.EVAL)
    return waiting.order_by(rollouts.c.purpose, rollouts.c.id).with_for_update(skip_locked=True)


def lease_rows(connection: Connection, ids: list[int]) -> dict[int, Any]:
    """Return the rows from which `lease_of` makes leases, by rollout id."""
    return {row.id: row for row in connection.execute(_LEASES.where(rollouts.c.id.in_(ids)))}


def lease_of(row: Any, run_seed: int) -> RolloutLease:
    """Return the lease that a row of `lease_rows` describes."""
    return RolloutLease(
        rollout_id=row.id,
        group_id=row.group_id,
        attempt=row.attempt,
        index=row.index,
        task=Task(env=row.env, family=row.family, seed=row.task_seed, params=row.params),
        max_turns=row.max_turns,
        sampling_seed=sampling_seed(run_seed, row.group_id, row.index),
        temperature=row.temperature,
        purpose=Purpose(row.purpose),
        tag=row.tag,
        policy=row.policy,
        deadline=row.deadline,
        recycled=row.recycled,
        failures=row.failures,
        partial=row.partial,
        beginning=row.beginning,
        guided=row.guided,
        parent=None if row.parent_id is None else Fork(rollout_id=row.parent_id, call_index=row.parent_call),
    )


def sampling_seed(run_seed: int, group_id: int, index: int) -> int:
    """Return a 63-bit seed, the same for every attempt of a rollout and different for every rollout."""
    digest = hashlib.blake2b(f"{run_seed}/{group_id}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def attempt_of(lease: RolloutLease) -> dict[str, int]:
    """Return the parameters of `HELD` and similar statements."""
    return {"rollout_id": lease.rollout_id, "lease_attempt": lease.attempt}


def lease_lost(lease: RolloutLease) -> LeaseLostError:
    """Return the error for a worker whose lease has ended."""
    return LeaseLostError(f"attempt {lease.attempt} of rollout {lease.rollout_id} no longer holds its lease")
