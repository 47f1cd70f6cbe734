"""Ledger of a run of any size, made within seconds: the database itself makes rows like those that the ledger writes.

The run has groups of 8 in batches of 64 groups, all trained, over 24 families. Every trajectory has a record of 4 kB
that cannot be compressed.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

from quartet.ledger import Ledger

GROUP, BATCH = 8, 64
_CHUNK = 50_000

_SERIES = {
    "sqlite": "WITH RECURSIVE s(i) AS (VALUES({low}) UNION ALL SELECT i + 1 FROM s WHERE i < {high}) ",
    "postgresql": "WITH s(i) AS (SELECT generate_series({low}, {high})) ",
}
_DIGEST = {"sqlite": "randomblob(32)", "postgresql": "sha256(i::text::bytea)"}
_DATA = {"sqlite": "randomblob(4096)", "postgresql": "decode(repeat(md5(i::text), 256), 'hex')"}
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


def load(ledger: Ledger, trajectories: int) -> None:
    """Fill a new ledger up to this many trajectories; a multiple of 512 gives whole batches."""
    with ledger.db.write() as connection:
        _fill(connection, _FAMILIES, 0, 23)
    for table, count in (
        (_BATCHES, trajectories // (GROUP * BATCH) + 1),
        (_POLICIES, trajectories // (GROUP * BATCH) + 1),
        (_GROUPS, trajectories // GROUP),
        (_ROLLOUTS, trajectories),
        (_BLOBS, trajectories),
        (_TRAJECTORIES, trajectories),
        (_USES, trajectories),
    ):
        for low in range(1, count + 1, _CHUNK):
            with ledger.db.write() as connection:
                _fill(connection, table, low, min(low + _CHUNK - 1, count))
    with ledger.db.write() as connection:
        _settle(connection)


def _fill(connection: Connection, statement: str, low: int, high: int) -> None:
    name = connection.dialect.name
    series = _SERIES[name].format(low=low, high=high)
    parts = {"digest": _DIGEST[name], "data": _DATA[name], "hex": _HEX[name], "series": series}
    cursor = connection.connection.cursor()  # called without parameters, so that a per cent sign has no other meaning
    cursor.execute(statement.format(low=low, high=high, **parts))


def _settle(connection: Connection) -> None:
    """Set the server's id sequences, and collect the statistics for its query planner."""
    if connection.dialect.name != "postgresql":
        return
    for table in _SEQUENCES:
        connection.execute(sa.text(f"SELECT setval('{table}_id_seq', (SELECT max(id) FROM {table}))"))
    connection.execute(sa.text("ANALYZE"))
