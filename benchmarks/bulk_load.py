"""Ledger of a run of any size, made within seconds: the database itself makes rows like those that the ledger writes.

The run has groups of 8 in batches of 64 groups, all trained, over 24 families. Every trajectory has a record of 4 kB
that cannot be compressed. Beside it, `queue_evaluation` makes rows that are alive: queued and leased rollouts.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger import Ledger
from quartet.ledger.schema import evaluations

GROUP, BATCH = 8, 64
_CHUNK, _COUNTED_CHUNK = 50_000, 1_000
"""Rows per transaction; fewer of a table whose rows are counted by a trigger, which changes one row again and again."""

_SERIES = {
    "sqlite": "WITH RECURSIVE s(i) AS (VALUES({low}) UNION ALL SELECT i + 1 FROM s WHERE i < {high}) ",
    "postgresql": "WITH s(i) AS (SELECT generate_series({low}, {high})) ",
}
_DIGEST = {"sqlite": "randomblob(32)", "postgresql": "sha256(i::text::bytea)"}
_DATA = {"sqlite": "randomblob({bytes})", "postgresql": "decode(repeat(md5(i::text), {bytes} / 16), 'hex')"}
RECORD_BYTES = 4096
_HEX = {"sqlite": "lower(hex(digest))", "postgresql": "encode(digest, 'hex')"}

_BATCHES = (
    "INSERT INTO batches (id, state, attempt, trainer, deadline, train_step, start_version, created_at, committed_at,"
    " metrics) {series} SELECT i, 'committed', 1, 't', i, i, i - 1, i, i, '{{}}' FROM s"
)
_POLICIES = (
    "INSERT INTO policies (version, name, path, train_step, created_at, deleted, rolled_back)"
    " {series} SELECT i, 'main', 'p', i, i, true, false FROM s"
)
_GROUPS = (
    "INSERT INTO groups (id, purpose, tag, env, family, task_seed, params, num_rollouts, enough, max_turns,"
    " temperature, state, reason, min_countable, countable, successes, mixed, judged_at_step, oldest_version,"
    " newest_version, versions, batch_id, created_at, closed_at) {series} SELECT i, 'train', '', 'e',"
    " 'family-' || (i % 24),"
    " i % 200, '{{}}', 8, 8, 16, 1.0, 'trained', '', 2, 8, 4, true, i / 64, (i - 1) / 64, (i - 1) / 64,"
    " '[' || ((i - 1) / 64) || ']', (i - 1) / 64 + 1, i, i FROM s"
)
_ROLLOUTS = (
    'INSERT INTO rollouts (id, group_id, "index", purpose, state, status, attempt, failures, recycled, partial,'
    " worker, finished_at) {series}"
    " SELECT i, (i - 1) / 8 + 1, (i - 1) % 8, 'train', 'finished', 'completed', 1, 0, 0, '', 'w', i FROM s"
)
_BLOBS = "INSERT INTO blobs (id, digest, data) {series} SELECT i, {digest}, {data} FROM s"
_TRAJECTORIES = (
    "INSERT INTO trajectories (id, rollout_id, group_id, attempt, kind, purpose, family, status, counted, excluded,"
    " success, reward, turns, prompt_tokens, response_tokens, oldest_version, newest_version, versions, wall_seconds,"
    " error, blob, blob_bytes, created_at) SELECT id, id, (id - 1) / 8 + 1, 1, 'final', 'train',"
    " 'family-' || (((id - 1) / 8 + 1) % 24), 'completed', true, '', id % 2 = 0, id % 2, 3 + id % 9, 900, 90,"
    " (id - 1) / 512, (id - 1) / 512, '[' || ((id - 1) / 512) || ']', 1.0, '', {hex}, 4096, id"
    " FROM blobs WHERE id BETWEEN {low} AND {high}"
)
_USES = (
    "INSERT INTO uses (id, trajectory_id, batch_id, role, voided)"
    " {series} SELECT i, i, (i - 1) / 512 + 1, 'fresh', false FROM s"
)
_FAMILIES = "INSERT INTO families (family, train_groups) {series} SELECT 'family-' || i, 1000 FROM s"
_SEQUENCES = ("batches", "groups", "rollouts", "blobs", "trajectories", "uses")


_OPEN_GROUPS = (
    "INSERT INTO groups (id, purpose, tag, env, family, task_seed, params, num_rollouts, enough, max_turns,"
    " temperature, state, reason, min_countable, countable, successes, mixed, judged_at_step, created_at, leased_at)"
    " {series} SELECT i, 'eval', 'during/1', 'e', 'family-' || (i % 24), i, '{{}}', 1, 1, 16, 0.0, 'open', '', 0, 0, 0,"
    " false, 0, i, 1.0 FROM s"
)
_LIVE_ROLLOUTS = (
    'INSERT INTO rollouts (group_id, "index", purpose, state, status, attempt, failures, recycled, partial,'
    " worker, deadline) {series} SELECT i, 0, 'eval', CASE WHEN i % 2 = 0 THEN 'queued' ELSE 'leased' END, '', i % 2,"
    " 0, 0, '', CASE WHEN i % 2 = 0 THEN '' ELSE 'w' END, CASE WHEN i % 2 = 0 THEN NULL ELSE 1e12 END FROM s"
)


def load(ledger: Ledger, trajectories: int, record_bytes: int = RECORD_BYTES) -> None:
    """Fill a new ledger up to this many trajectories; a multiple of 512 gives whole batches."""
    with ledger.db.write() as connection:
        _fill(connection, _FAMILIES, 0, 23)
    for table, count, chunk in (
        (_BATCHES, trajectories // (GROUP * BATCH) + 1, _CHUNK),
        (_POLICIES, trajectories // (GROUP * BATCH) + 1, _CHUNK),
        (_GROUPS, trajectories // GROUP, _COUNTED_CHUNK),
        (_ROLLOUTS, trajectories, _CHUNK),
        (_BLOBS, trajectories, _CHUNK),
        (_TRAJECTORIES, trajectories, _CHUNK),
        (_USES, trajectories, _CHUNK),
    ):
        for low in range(1, count + 1, chunk):
            with ledger.db.write() as connection:
                _fill(connection, table, low, min(low + chunk - 1, count), record_bytes)
    _settle(ledger)


def queue_evaluation(ledger: Ledger, rollouts: int) -> None:
    """Add an evaluation of this many rollouts, of which one half is queued and the other half leased for ever."""
    with ledger.db.write() as connection:
        connection.execute(sa.insert(evaluations).values(tag="during/1", version=0, created_at=0.0))
        first = connection.execute(sa.text("SELECT coalesce(max(id), 0) + 1 FROM groups")).scalar_one()
    for table in (_OPEN_GROUPS, _LIVE_ROLLOUTS):
        for low in range(first, first + rollouts, _CHUNK):
            with ledger.db.write() as connection:
                _fill(connection, table, low, min(low + _CHUNK, first + rollouts) - 1)
    _settle(ledger)


def _fill(connection: Connection, statement: str, low: int, high: int, record_bytes: int = RECORD_BYTES) -> None:
    name = connection.dialect.name
    series = _SERIES[name].format(low=low, high=high)
    data = _DATA[name].format(bytes=record_bytes)
    parts = {"digest": _DIGEST[name], "data": data, "hex": _HEX[name], "series": series}
    cursor = connection.connection.cursor()  # called without parameters, so that a per cent sign has no other meaning
    cursor.execute(statement.format(low=low, high=high, **parts))


def _settle(ledger: Ledger) -> None:
    """Set the server's id sequences. Remove old versions of rows and collect statistics, as its autovacuum does."""
    with ledger.db.write() as connection:
        if connection.dialect.name != "postgresql":
            return
        for table in _SEQUENCES:
            connection.execute(sa.text(f"SELECT setval('{table}_id_seq', (SELECT coalesce(max(id), 1) FROM {table}))"))
        engine = connection.engine
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as apart:  # not possible in a transaction
        apart.exec_driver_sql("VACUUM ANALYZE")
