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
    )
}
"""SQL that turns a ledger of this version into the next one. Plain enough for every database that Quartet knows."""


def migrate(connection: Connection, version: int, target: int) -> None:
    """Bring the ledger from `version` to `target`, step by step. Rows stay; what is new is computed from them."""
    for step in range(version, target):
        for statement in MIGRATIONS[step]:
            connection.execute(sa.text(statement))
