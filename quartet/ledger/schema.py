"""The ledger's tables, declared once for SQLite and PostgreSQL.

Times are in Unix seconds unless a comment names another clock, sizes in bytes. Only rows of `blobs` and `pictures` are
deleted. Superseded, late, failed and dropped rows are marked, so that queries can verify the ledger's invariants later.
"""

from enum import StrEnum

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    literal_column,
    text,
)

from quartet.types import MAIN, Purpose

SCHEMA_VERSION = 12
"""Schema version. Increment it on any change of a table or of the record format, and add a step to `migrations.py`.
Ledgers of a newer version are refused."""


class TrajectoryKind(StrEnum):
    """Outcome of an appended trajectory. A part of a rollout has at most one `final` trajectory."""

    FINAL = "final"
    RETRIED = "retried"
    """The trajectory ended with an infrastructure error, and the rollout was requeued."""
    LATE = "late"
    """The trajectory's group had already closed, so the trajectory was stored and not added to the group."""
    SUPERSEDED = "superseded"
    """The attempt had lost its lease before it appended the trajectory."""
    PARTIAL = "partial"
    """The attempt was recalled: the rollout was requeued, and the next attempt continues from this trajectory."""
    EVICTED = "evicted"
    """The rollout was recalled more often than allowed, and was cancelled."""


metadata = MetaData()
ONLY = "only"
"""Key in the `info` of an index that only one SQL dialect has: the dialect's name."""

run_values = Table("run", metadata, Column("key", Text, primary_key=True), Column("value", JSON, nullable=False))

blobs = Table(
    "blobs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of what was stored, before compression
    Column("data", LargeBinary, nullable=False),
    Column("uses", Integer, nullable=False, server_default="1"),  # number of writes, each by another row
    Index("one_blob_per_digest", "digest", unique=True),
)

policies = Table(
    "policies",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    Column("train_step", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("success", Float),  # success rate of its held-out evaluation, if there was one
    Column("deleted", Boolean, nullable=False, default=False),  # its folder was deleted (disk budget)
    Column("rolled_back", Boolean, nullable=False, default=False),
    Index(
        "policies_on_disk",
        "name",
        "version",
        sqlite_where=text("deleted = 0"),
        postgresql_where=text("NOT deleted"),
    ),
    Index(
        "policies_by_success",
        "name",
        "success",
        sqlite_where=text("success IS NOT NULL"),
        postgresql_where=text("success IS NOT NULL"),
    ),
    Index(
        "policies_rolled_back",
        "name",
        "version",
        "train_step",
        sqlite_where=text("rolled_back = 1"),  # as SQLAlchemy renders it: SQLite compares the text
        postgresql_where=text("rolled_back"),
    ),
)

families = Table(
    "families",
    metadata,
    Column("family", Text, primary_key=True),
    Column("train_groups", Integer, nullable=False, default=0),  # number admitted so far
)

MAY_END = "state = 'open' AND unfinished <= num_rollouts - enough"
"""Condition of an index: open groups of which enough rollouts are finished, so that their round may have ended."""

groups = Table(
    "groups",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("purpose", Text, nullable=False),
    Column("policy", Text, nullable=False, server_default=MAIN),  # policy whose trajectories it compares
    # Group of another policy that owns the rollouts; this group holds its own policy's trajectories of them.
    Column("rollouts_of", ForeignKey("groups.id")),
    Column("tag", Text, nullable=False),
    Column("env", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("task_seed", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
    Column("params", JSON, nullable=False),
    Column("num_rollouts", Integer, nullable=False),
    Column("enough", Integer, nullable=False),  # number of countable members at which it closes
    Column("unfinished", Integer, nullable=False, server_default="0"),  # its unfinished rollouts; kept by a trigger
    Column("max_turns", Integer, nullable=False),
    Column("temperature", Float, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False, default=""),  # drop reason
    Column("min_countable", Integer, nullable=False, default=0),  # number of members it needs to stay trainable
    # Written with the verdict, over its own members:
    Column("countable", Integer, nullable=False, default=0),
    Column("successes", Integer, nullable=False, default=0),
    Column("mixed", Boolean, nullable=False, default=False),  # they had different rewards
    Column("judged_at_step", Integer, nullable=False, default=0),  # number of train steps committed at the verdict
    Column("oldest_version", Integer),  # of all tokens of its countable members; before the verdict a lower bound
    Column("newest_version", Integer),
    Column("versions", Text),  # versions of all these tokens in the form of `version_list`, written with the verdict
    Column("batch_id", ForeignKey("batches.id")),
    Column("failures", Integer, nullable=False, server_default="0"),  # consecutive failed train steps with it
    Column("created_at", Float, nullable=False),
    Column("leased_at", Float),  # first lease of one of its rollouts, by `Ledger.now`; None while all are queued
    Column("closed_at", Float),
    Index("groups_by_state", "purpose", "state", "oldest_version", "id"),
    Index("groups_by_tag", "tag", "state", "id"),
    Index(
        "rounds_that_may_end",
        "state",
        "id",
        sqlite_where=text(MAY_END),
        postgresql_where=text(MAY_END),
    ),
    Index(
        "open_groups_by_lease",
        "state",
        "purpose",
        "leased_at",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
    Index(
        "outcomes_by_family",
        "purpose",
        "family",
        "id",
        sqlite_where=text("countable > 0"),
        postgresql_where=text("countable > 0"),
    ),
    Index("groups_by_batch", "batch_id"),
    Index(
        "groups_beside",
        "rollouts_of",
        sqlite_where=text("rollouts_of IS NOT NULL"),
        postgresql_where=text("rollouts_of IS NOT NULL"),
    ),
)

group_sizes = Table(
    "group_sizes",
    metadata,
    Column("policy", Text, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("groups", Integer, nullable=False),  # number of training groups in this state; kept by a trigger
    Column("rollouts", Integer, nullable=False),  # sum of their numbers of rollouts
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("group_id", ForeignKey("groups.id"), nullable=False),
    Column("index", Integer, nullable=False),
    Column("round", Integer, nullable=False, server_default="0"),  # in which control added it; a fork has its parent's
    Column("purpose", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("status", Text, nullable=False, default=""),
    Column("attempt", Integer, nullable=False, default=0),  # fencing token: increases with every claim
    Column("recycled", Integer, nullable=False, default=0),  # number of recalled attempts
    Column("failures", Integer, nullable=False, default=0),  # number of infrastructure errors and expired leases
    Column("parent_id", Integer),  # rollout of the same group that it was forked from
    Column("parent_call", Integer),  # index of the last call that it shares with its parent
    Column("beginning", Text, nullable=False, server_default=""),  # blob of what a child begins with, until it ends
    Column("beginning_bytes", Integer, nullable=False, server_default="0"),  # size of that blob
    Column("guided", Boolean, nullable=False, server_default=false()),  # its prompts contain guidance
    Column("partial", Text, nullable=False, default=""),  # blob of the calls that its next attempt continues from
    Column("worker", Text, nullable=False, default=""),
    Column("deadline", Float),  # of the lease, by `Ledger.now`
    Column("finished_at", Float),
    UniqueConstraint("group_id", "index"),
    Index("rollouts_by_state", "state", "purpose", "id"),
    # Without the state, SQLite prefers the index by state. With it, PostgreSQL does not search by deadline, since the
    # index's condition implies the state. Each would read all leases.
    Index("leases_by_deadline", "state", "deadline", sqlite_where=text("state = 'leased'"), info={ONLY: "sqlite"}),
    Index("leases_by_deadline", "deadline", postgresql_where=text("state = 'leased'"), info={ONLY: "postgresql"}),
    Index(
        "rollouts_by_parent",
        "parent_id",
        sqlite_where=text("parent_id IS NOT NULL"),
        postgresql_where=text("parent_id IS NOT NULL"),
    ),
    Index(
        "rollouts_by_beginning",
        "beginning",
        sqlite_where=text("beginning <> ''"),
        postgresql_where=text("beginning <> ''"),
    ),
)
HAS_BEGINNING = rollouts.c.beginning != literal_column("''")
"""Condition that a rollout has a stored beginning. The empty text is a literal, because SQLite uses the index of
beginnings only if the query's text implies the index's condition."""

trajectories = Table(
    "trajectories",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("rollout_id", ForeignKey("rollouts.id"), nullable=False),
    Column("group_id", ForeignKey("groups.id"), nullable=False),
    Column("policy", Text, nullable=False, server_default=MAIN),
    Column("role", Text, nullable=False, server_default="agent"),
    Column("part", Text, nullable=False, server_default=""),  # name within its rollout
    Column("attempt", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("counted", Boolean, nullable=False),  # final, with a countable status, in a group of its own policy
    Column("excluded", Text, nullable=False, default=""),  # filter that left it out of its group
    Column("success", Boolean, nullable=False),
    Column("reward", Float, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("valid_actions", Integer),  # number of turns without an error; None before schema 5
    Column("error", Text, nullable=False, default=""),  # error that ended it early, in one line
    Column("prompt_tokens", Integer, nullable=False),
    Column("response_tokens", Integer, nullable=False),
    Column("oldest_version", Integer),
    Column("newest_version", Integer),
    Column("versions", Text),  # versions of all its tokens in the form of `version_list`; None without tokens
    Column("wall_seconds", Float, nullable=False),
    Column("blob", Text, nullable=False),
    Column("blob_bytes", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Index(
        "one_final_trajectory_per_part",
        "rollout_id",
        "part",
        unique=True,
        sqlite_where=text("kind = 'final'"),
        postgresql_where=text("kind = 'final'"),
    ),
    Index("trajectories_by_group", "group_id"),
    Index("trajectories_by_family", "purpose", "counted", "family", "id"),
    Index(
        "successes_by_turns",
        "purpose",
        "family",
        "turns",
        sqlite_where=text("success = 1 AND counted = 1"),  # as SQLAlchemy renders it: SQLite compares the text
        postgresql_where=text("success AND counted"),
    ),
    Index("trajectories_by_purpose", "purpose", "counted", "id"),
    Index("trajectories_by_time", "kind", "created_at"),
)
IS_TRAINING = groups.c.purpose.not_in([purpose for purpose in Purpose if purpose is not Purpose.TRAIN])
"""Condition for training groups, written as an exclusion: for an equality SQLite would choose an index that needs a
sort of all training groups."""
IS_FINAL = trajectories.c.kind == literal_column(f"'{TrajectoryKind.FINAL}'")
"""Condition for final trajectories. The kind is a literal, because SQLite uses the index of final trajectories only if
the query's text implies the index's condition."""

pictures = Table(
    "pictures",
    metadata,
    Column("trajectory_id", ForeignKey("trajectories.id"), primary_key=True, autoincrement=False),
    Column("digest", Text, primary_key=True),  # blob, possibly shared; the disk budget deletes this row
    Column("bytes", Integer, nullable=False),  # size of the blob
    Index("pictures_by_digest", "digest", "trajectory_id"),
)

batches = Table(
    "batches",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("policy", Text, nullable=False, server_default=MAIN),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("trainer", Text, nullable=False),
    Column("deadline", Float, nullable=False),  # of the lease, by `Ledger.now`
    Column("train_step", Integer, nullable=False),
    Column("start_version", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("committed_at", Float),
    Column("metrics", JSON),
    Index("batches_by_state", "state", "train_step", "policy"),
)

FRESH, REPLAY = "fresh", "replay"
"""Roles of a row of `uses`: the batch trains on the trajectory as a member of its own group (`fresh`), or of a group
that the trajectory joined (`replay`)."""

uses = Table(
    "uses",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("trajectory_id", ForeignKey("trajectories.id"), nullable=False),
    Column("batch_id", ForeignKey("batches.id"), nullable=False),
    Column("role", Text, nullable=False),
    Column("voided", Boolean, nullable=False, default=False),  # its batch was released
    Index(
        "one_fresh_use_per_trajectory",
        "trajectory_id",
        unique=True,
        sqlite_where=text("role = 'fresh' AND NOT voided"),
        postgresql_where=text("role = 'fresh' AND NOT voided"),
    ),
    Index("uses_by_batch", "batch_id"),
)

pool = Table(
    "pool",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("policy", Text, nullable=False, server_default=MAIN),
    Column("task_key", Text, nullable=False),
    Column("rollout_id", ForeignKey("rollouts.id"), nullable=False),
    Column("outdated", Boolean, nullable=False, default=False),  # replaced by newer successes, or quarantined
    Index("pool_by_task", "task_key", "policy", "outdated", "id"),
    Index("pool_by_rollout", "rollout_id"),
)

replays = Table(
    "replays",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("group_id", ForeignKey("groups.id"), nullable=False),
    Column("trajectory_id", ForeignKey("trajectories.id"), nullable=False),
    Column("rule", Text, nullable=False),
    Index("replays_by_group", "group_id"),
    Index("replays_by_trajectory", "trajectory_id"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("tag", Text, primary_key=True),
    Column("version", Integer, nullable=False),  # newest version of the run's first policy at its admission
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float),
)

modules = Table(
    "modules",
    metadata,
    Column("module", Text, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("url", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("waiting_for", Text, nullable=False),
    Column("ends_when", Text, nullable=False),
    Column("since", Float, nullable=False),
    Column("beat_at", Float, nullable=False),
    Column("started_at", Float, nullable=False),  # first heartbeat of this process
    Column("waiting_seconds", Float, nullable=False),  # of this process
    Column("former_waiting_seconds", Float, nullable=False),  # of the module's earlier processes
    Column("former_alive_seconds", Float, nullable=False),
    Column("capacity", Integer, nullable=False, default=0),  # sessions that an environment host serves at once
    Column("live_until", Float),  # by the clock of leases; null once the module has left or was silent for too long
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("time", Float, nullable=False),
    Column("kind", Text, nullable=False),
    Column("fields", JSON, nullable=False),
)
