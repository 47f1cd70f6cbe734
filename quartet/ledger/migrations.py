"""Schema migrations from one version to the next, run inside the transaction that upgrades an older ledger.

Ledgers of versions 1 and 2 are SQLite files. PostgreSQL is supported since version 3, so later migrations work on both.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

MIGRATIONS: dict[int, tuple[str | dict[str, str], ...]] = {
    1: (
        "ALTER TABLE groups ADD COLUMN countable INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE groups ADD COLUMN successes INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE groups ADD COLUMN mixed BOOLEAN NOT NULL DEFAULT 0",
        "ALTER TABLE groups ADD COLUMN judged_at_step INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE families ADD COLUMN train_groups INTEGER NOT NULL DEFAULT 0",
        "UPDATE groups SET"
        " countable = (SELECT count(*) FROM trajectories t WHERE t.group_id = groups.id AND t.counted),"
        " successes = (SELECT count(*) FROM trajectories t WHERE t.group_id = groups.id AND t.counted AND t.success),"
        " mixed = (SELECT count(DISTINCT reward) > 1 FROM trajectories t WHERE t.group_id = groups.id AND t.counted),"
        " judged_at_step = (SELECT coalesce(max(train_step), 0) FROM batches b"
        " WHERE b.state = 'committed' AND b.committed_at <= groups.closed_at)"
        " WHERE state NOT IN ('open', 'closed')",
        "UPDATE families SET train_groups ="
        " (SELECT count(*) FROM groups g WHERE g.family = families.family AND g.purpose = 'train')",
        "CREATE INDEX successes_by_turns ON trajectories (purpose, family, turns) WHERE success = 1 AND counted = 1",
        "DROP INDEX groups_by_family",
        "CREATE INDEX outcomes_by_family ON groups (purpose, family, id) WHERE countable > 0",
        "CREATE TABLE pool (id INTEGER NOT NULL, task_key TEXT NOT NULL, rollout_id INTEGER NOT NULL,"
        " outdated BOOLEAN NOT NULL, PRIMARY KEY (id), FOREIGN KEY(rollout_id) REFERENCES rollouts (id))",
        "CREATE INDEX pool_by_task ON pool (task_key, outdated, id)",
        "CREATE TABLE replays (id INTEGER NOT NULL, group_id INTEGER NOT NULL, trajectory_id INTEGER NOT NULL,"
        " rule TEXT NOT NULL, PRIMARY KEY (id), FOREIGN KEY(group_id) REFERENCES groups (id),"
        " FOREIGN KEY(trajectory_id) REFERENCES trajectories (id))",
        "CREATE INDEX replays_by_group ON replays (group_id)",
        "CREATE INDEX replays_by_trajectory ON replays (trajectory_id)",
    ),
    2: (
        "CREATE TABLE blobs (id INTEGER NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL,"
        " uses INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (id))",
        "CREATE UNIQUE INDEX one_blob_per_digest ON blobs (digest)",
        "DROP INDEX trajectories_by_rollout",
        "DROP INDEX trajectories_by_screenshots",
        "DROP INDEX uses_by_trajectory",
        "CREATE INDEX trajectories_by_screenshots ON trajectories (screenshots_blob)"
        " WHERE screenshots_blob IS NOT NULL",
        "CREATE INDEX policies_on_disk ON policies (version) WHERE deleted = 0",
        "CREATE INDEX policies_by_success ON policies (success) WHERE success IS NOT NULL",
    ),
    3: (
        "ALTER TABLE groups ADD COLUMN enough INTEGER NOT NULL DEFAULT 0",
        "UPDATE groups SET enough = num_rollouts",
        "ALTER TABLE rollouts ADD COLUMN recycled INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE rollouts ADD COLUMN partial TEXT NOT NULL DEFAULT ''",
    ),
    4: (
        "ALTER TABLE groups ADD COLUMN leased_at FLOAT",
        "ALTER TABLE groups ADD COLUMN failures INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE groups ADD COLUMN versions TEXT",
        "ALTER TABLE trajectories ADD COLUMN versions TEXT",
        # Versions between the oldest and the newest were not stored, so only these two are known.
        "UPDATE groups SET versions = '[' || oldest_version || ', ' || newest_version || ']'"
        " WHERE newest_version IS NOT NULL",
        "UPDATE trajectories SET versions = '[' || oldest_version || ', ' || newest_version || ']'"
        " WHERE newest_version IS NOT NULL",
        "ALTER TABLE rollouts ADD COLUMN failures INTEGER NOT NULL DEFAULT 0",
        "UPDATE rollouts SET failures = attempt - recycled WHERE state = 'queued'",
        "UPDATE rollouts SET failures = attempt - recycled - 1 WHERE state = 'leased'",
        "ALTER TABLE trajectories ADD COLUMN valid_actions INTEGER",
        "ALTER TABLE trajectories ADD COLUMN error TEXT NOT NULL DEFAULT ''",
        # Task keys did not include parameters, so a success with parameters may have the key of another task.
        "UPDATE pool SET outdated = TRUE WHERE rollout_id IN (SELECT rollouts.id FROM rollouts"
        " JOIN groups ON rollouts.group_id = groups.id WHERE CAST(groups.params AS TEXT) <> '{}')",
    ),
    5: (
        # The record format changed. Existing records keep theirs (`former_records.py`), with all pictures in one blob.
        "ALTER TABLE rollouts ADD COLUMN parent_id INTEGER",
        "ALTER TABLE rollouts ADD COLUMN parent_call INTEGER",
        "CREATE INDEX rollouts_by_parent ON rollouts (parent_id) WHERE parent_id IS NOT NULL",
        "ALTER TABLE rollouts ADD COLUMN beginning TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE rollouts ADD COLUMN beginning_bytes INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX rollouts_by_beginning ON rollouts (beginning) WHERE beginning <> ''",
        # Several policies: the key of a policy is its name and its version.
        "DROP INDEX policies_on_disk",
        "DROP INDEX policies_by_success",
        "ALTER TABLE policies RENAME TO former_policies",
        "CREATE TABLE policies (name TEXT NOT NULL, version INTEGER NOT NULL, path TEXT NOT NULL,"
        " train_step INTEGER NOT NULL, created_at FLOAT NOT NULL, success FLOAT, deleted BOOLEAN NOT NULL,"
        " rolled_back BOOLEAN NOT NULL, PRIMARY KEY (name, version))",
        "INSERT INTO policies SELECT name, version, path, train_step, created_at, success, deleted, rolled_back"
        " FROM former_policies",
        "DROP TABLE former_policies",
        {
            "sqlite": "CREATE INDEX policies_on_disk ON policies (name, version) WHERE deleted = 0",
            "postgresql": "CREATE INDEX policies_on_disk ON policies (name, version) WHERE NOT deleted",
        },
        "CREATE INDEX policies_by_success ON policies (name, success) WHERE success IS NOT NULL",
        "ALTER TABLE groups ADD COLUMN policy TEXT NOT NULL DEFAULT 'main'",
        "ALTER TABLE groups ADD COLUMN rollouts_of INTEGER REFERENCES groups (id)",
        "CREATE INDEX groups_beside ON groups (rollouts_of) WHERE rollouts_of IS NOT NULL",
        "ALTER TABLE trajectories ADD COLUMN policy TEXT NOT NULL DEFAULT 'main'",
        "ALTER TABLE trajectories ADD COLUMN role TEXT NOT NULL DEFAULT 'agent'",
        "ALTER TABLE trajectories ADD COLUMN part TEXT NOT NULL DEFAULT ''",
        "DROP INDEX one_final_trajectory_per_rollout",
        "CREATE UNIQUE INDEX one_final_trajectory_per_part ON trajectories (rollout_id, part) WHERE kind = 'final'",
        "ALTER TABLE batches ADD COLUMN policy TEXT NOT NULL DEFAULT 'main'",
        "DROP INDEX batches_by_state",
        "CREATE INDEX batches_by_state ON batches (state, train_step, policy)",
        "ALTER TABLE pool ADD COLUMN policy TEXT NOT NULL DEFAULT 'main'",
        "DROP INDEX pool_by_task",
        "CREATE INDEX pool_by_task ON pool (task_key, policy, outdated, id)",
        "CREATE TABLE pictures (trajectory_id INTEGER NOT NULL, digest TEXT NOT NULL, bytes INTEGER NOT NULL,"
        " PRIMARY KEY (trajectory_id, digest), FOREIGN KEY(trajectory_id) REFERENCES trajectories (id))",
        "CREATE INDEX pictures_by_digest ON pictures (digest, trajectory_id)",
        "INSERT INTO pictures SELECT id, screenshots_blob, screenshots_bytes FROM trajectories"
        " WHERE screenshots_blob IS NOT NULL",
        "DROP INDEX trajectories_by_screenshots",
        "ALTER TABLE trajectories DROP COLUMN screenshots_blob",
        "ALTER TABLE trajectories DROP COLUMN screenshots_bytes",
    ),
    # Engines, workers and environment hosts may join and leave a run.
    6: (
        "ALTER TABLE modules ADD COLUMN capacity INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE modules ADD COLUMN live_until FLOAT",
    ),
    # Guided rollouts. Records of observations and prompts got fields with defaults.
    7: ("ALTER TABLE rollouts ADD COLUMN guided BOOLEAN NOT NULL DEFAULT FALSE",),
    # Counts beside the records (`counters.py`), and indexes for what a tick of the data manager reads.
    8: (
        "ALTER TABLE groups ADD COLUMN unfinished INTEGER NOT NULL DEFAULT 0",
        "UPDATE groups SET unfinished = (SELECT count(*) FROM rollouts r"
        " WHERE r.group_id = groups.id AND r.state <> 'finished') WHERE state = 'open'",
        "CREATE TABLE group_sizes (policy TEXT NOT NULL, state TEXT NOT NULL, groups INTEGER NOT NULL,"
        " rollouts INTEGER NOT NULL, PRIMARY KEY (policy, state))",
        "INSERT INTO group_sizes SELECT policy, state, count(*), sum(num_rollouts) FROM groups"
        " WHERE purpose = 'train' GROUP BY policy, state",
        "DROP INDEX groups_by_tag",
        "CREATE INDEX groups_by_tag ON groups (tag, state, id)",
        "CREATE INDEX rounds_that_may_end ON groups (state, id)"
        " WHERE state = 'open' AND unfinished <= num_rollouts - enough",
        "CREATE INDEX open_groups_by_lease ON groups (state, purpose, leased_at) WHERE state = 'open'",
        "CREATE INDEX leases_by_deadline ON rollouts (state, deadline) WHERE state = 'leased'",
        {
            "sqlite": "CREATE INDEX policies_rolled_back ON policies (name, version, train_step) WHERE rolled_back = 1",
            "postgresql": "CREATE INDEX policies_rolled_back ON policies (name, version, train_step) WHERE rolled_back",
        },
    ),
    # Rounds of a group. Those of earlier groups were not stored.
    9: ("ALTER TABLE rollouts ADD COLUMN round INTEGER NOT NULL DEFAULT 0",),
    # PostgreSQL searches leases by deadline alone. Observations got `prepared`, empty by default.
    10: (
        {"postgresql": "DROP INDEX leases_by_deadline"},
        {"postgresql": "CREATE INDEX leases_by_deadline ON rollouts (deadline) WHERE state = 'leased'"},
    ),
    # The disk budget asks of each old trajectory whether the pool holds its rollout.
    11: ("CREATE INDEX pool_by_rollout ON pool (rollout_id)",),
}
"""Schema version -> SQL statements that migrate a ledger from this version to the next. A statement may differ by SQL
dialect, or be for one of them only."""


def migrate(connection: Connection, version: int, target: int) -> None:
    """Migrate the ledger from `version` to `target` step by step. Rows are kept; new columns are computed from them or
    get a default."""
    for step in range(version, target):
        for statement in MIGRATIONS[step]:
            own = statement if isinstance(statement, str) else statement.get(connection.dialect.name)
            if own:
                connection.execute(sa.text(own))
