"""Steps from one schema version to the next, run inside the transaction that opens an older ledger."""

import sqlalchemy as sa
from sqlalchemy import Connection

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "ALTER TABLE groups ADD COLUMN countable INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE groups ADD COLUMN successes INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE families ADD COLUMN train_groups INTEGER NOT NULL DEFAULT 0",
        "UPDATE groups SET countable ="
        " (SELECT count(*) FROM trajectories t WHERE t.group_id = groups.id AND t.counted), successes ="
        " (SELECT count(*) FROM trajectories t WHERE t.group_id = groups.id AND t.counted AND t.success)"
        " WHERE state NOT IN ('open', 'closed')",
        "UPDATE families SET train_groups ="
        " (SELECT count(*) FROM groups g WHERE g.family = families.family AND g.purpose = 'train')",
        "CREATE INDEX successes_by_turns ON trajectories (purpose, family, turns) WHERE success AND counted",
    ),
    2: (
        "CREATE TABLE pool (id INTEGER NOT NULL PRIMARY KEY, task_key TEXT NOT NULL,"
        " rollout_id INTEGER NOT NULL REFERENCES rollouts (id), replays INTEGER NOT NULL)",
        "CREATE INDEX pool_by_task ON pool (task_key, id)",
        "CREATE INDEX pool_by_rollout ON pool (rollout_id)",
        "CREATE TABLE replays (id INTEGER NOT NULL PRIMARY KEY, group_id INTEGER NOT NULL REFERENCES groups (id),"
        " trajectory_id INTEGER NOT NULL REFERENCES trajectories (id), rule TEXT NOT NULL)",
        "CREATE INDEX replays_by_group ON replays (group_id)",
    ),
}
"""SQL that turns a ledger of this version into the next one."""


def migrate(connection: Connection, version: int, target: int) -> None:
    """Bring the ledger from `version` to `target`, step by step. Rows stay; what is new is computed from them."""
    for step in range(version, target):
        for statement in MIGRATIONS[step]:
            connection.execute(sa.text(statement))
