"""Counts beside the records, kept by database triggers: no statement of a tick counts rows, so its cost does not grow
with the run.

`groups.unfinished` is the number of a group's unfinished rollouts, `group_sizes` the number of training groups and of
their rollouts by policy and state. Other groups are not counted: thousands of them may be written in one transaction,
and PostgreSQL keeps every version of a row that a transaction changes. A program that changes a row changes the counts
in the same transaction.
"""

import sqlalchemy as sa
from sqlalchemy import Connection

_MORE_GROUPS = (
    "INSERT INTO group_sizes (policy, state, groups, rollouts)"
    " VALUES (NEW.policy, NEW.state, 1, NEW.num_rollouts) ON CONFLICT (policy, state) DO UPDATE"
    " SET groups = group_sizes.groups + 1, rollouts = group_sizes.rollouts + excluded.rollouts"
)
_FEWER_GROUPS = (
    "UPDATE group_sizes SET groups = groups - 1, rollouts = rollouts - OLD.num_rollouts"
    " WHERE policy = OLD.policy AND state = OLD.state"
)
_ONE_MORE = "UPDATE groups SET unfinished = unfinished + 1 WHERE id = NEW.group_id"
_ONE_LESS = "UPDATE groups SET unfinished = unfinished - 1 WHERE id = NEW.group_id"
_ENDED = "OLD.state <> 'finished' AND NEW.state = 'finished'"
_COUNTED = "NEW.purpose = 'train'"
_RESIZED = f"{_COUNTED} AND (OLD.state <> NEW.state OR OLD.num_rollouts <> NEW.num_rollouts)"

_NAMES = {"group_added": "groups", "group_moved": "groups", "rollout_added": "rollouts", "rollout_ended": "rollouts"}
_SQLITE = (
    *(f"DROP TRIGGER IF EXISTS {name}" for name in _NAMES),
    f"CREATE TRIGGER group_added AFTER INSERT ON groups WHEN {_COUNTED} BEGIN {_MORE_GROUPS}; END",
    f"CREATE TRIGGER group_moved AFTER UPDATE OF state, num_rollouts ON groups WHEN {_RESIZED}"
    f" BEGIN {_FEWER_GROUPS}; {_MORE_GROUPS}; END",
    f"CREATE TRIGGER rollout_added AFTER INSERT ON rollouts WHEN NEW.state <> 'finished' BEGIN {_ONE_MORE}; END",
    f"CREATE TRIGGER rollout_ended AFTER UPDATE OF state ON rollouts WHEN {_ENDED} BEGIN {_ONE_LESS}; END",
)
# A worker's transaction locks its rollouts first. The counts of their groups are deferred to the commit, when it needs
# no further lock: two transactions that finish forks of one group could otherwise wait for each other.
_POSTGRESQL = (
    *(f"DROP TRIGGER IF EXISTS {name} ON {table}" for name, table in _NAMES.items()),
    f"CREATE OR REPLACE FUNCTION count_group() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    f" IF TG_OP = 'UPDATE' THEN {_FEWER_GROUPS}; END IF; {_MORE_GROUPS}; RETURN NULL; END $$",
    f"CREATE OR REPLACE FUNCTION count_rollout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    f" IF TG_OP = 'INSERT' THEN {_ONE_MORE}; ELSE {_ONE_LESS}; END IF; RETURN NULL; END $$",
    f"CREATE TRIGGER group_added AFTER INSERT ON groups FOR EACH ROW WHEN ({_COUNTED}) EXECUTE FUNCTION count_group()",
    f"CREATE TRIGGER group_moved AFTER UPDATE OF state, num_rollouts ON groups FOR EACH ROW WHEN ({_RESIZED})"
    " EXECUTE FUNCTION count_group()",
    "CREATE TRIGGER rollout_added AFTER INSERT ON rollouts FOR EACH ROW WHEN (NEW.state <> 'finished')"
    " EXECUTE FUNCTION count_rollout()",
    "CREATE CONSTRAINT TRIGGER rollout_ended AFTER UPDATE OF state ON rollouts DEFERRABLE INITIALLY DEFERRED"
    f" FOR EACH ROW WHEN ({_ENDED}) EXECUTE FUNCTION count_rollout()",
)
_TRIGGERS = {"sqlite": _SQLITE, "postgresql": _POSTGRESQL}

WRONG_UNFINISHED = sa.text(
    "SELECT groups.id, groups.unfinished AS stored, count(rollouts.id) AS counted FROM groups"
    " LEFT JOIN rollouts ON rollouts.group_id = groups.id AND rollouts.state <> 'finished'"
    " GROUP BY groups.id, groups.unfinished HAVING groups.unfinished <> count(rollouts.id)"
)
"""Query for groups whose stored number of unfinished rollouts is wrong, for `quartet ledger check`."""
WRONG_SIZES = sa.text(
    "SELECT policy, state FROM (SELECT policy, state, 1 AS size, num_rollouts AS members FROM groups"
    " WHERE purpose = 'train' UNION ALL SELECT policy, state, -groups, -rollouts FROM group_sizes) AS both_counts"
    " GROUP BY policy, state HAVING sum(size) <> 0 OR sum(members) <> 0"
)
"""Query for the states whose stored numbers of training groups or of their rollouts are wrong."""


def keep_counts(connection: Connection) -> None:
    """Install the triggers on a ledger's tables, replacing older ones. The counts must be right."""
    for statement in _TRIGGERS[connection.dialect.name]:
        connection.exec_driver_sql(statement)
