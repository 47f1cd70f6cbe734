"""The groups of one family, newest first, by keyset."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import Connection

from quartet.ledger.schema import batches, families, groups
from quartet.types import Purpose

GROUPS_PER_PAGE = 40


class GroupPage(Struct, frozen=True, kw_only=True):
    """One page of groups with at least one countable member: only these have a verdict worth showing."""

    rows: Sequence[Any]
    """Columns of `groups`, and the train step."""
    older_than: int | None
    """Where the next page begins; None at the end."""


def known_families(connection: Connection) -> list[str]:
    """Families that training has admitted, by name."""
    return list(connection.execute(sa.select(families.c.family).order_by(families.c.family)).scalars())


def list_groups(connection: Connection, family: str, older_than: int | None = None) -> GroupPage:
    """Training groups of the family with an id below `older_than`."""
    rows = connection.execute(group_query(family, older_than).limit(GROUPS_PER_PAGE + 1)).all()
    more = len(rows) > GROUPS_PER_PAGE
    rows = rows[:GROUPS_PER_PAGE]
    return GroupPage(rows=rows, older_than=rows[-1].id if more else None)


def group_query(family: str, older_than: int | None) -> sa.Select[Any]:
    """Reads an index backwards: written so that SQLite takes the one of groups with a countable member."""
    names = (
        "id",
        "task_seed",
        "num_rollouts",
        "max_turns",
        "state",
        "reason",
        "countable",
        "successes",
        "closed_at",
        "policy",
    )
    query = (
        sa.select(*(groups.c[name] for name in names), batches.c.train_step)
        .outerjoin(batches, groups.c.batch_id == batches.c.id)
        .where(groups.c.purpose == Purpose.TRAIN, groups.c.family == family)
        .where(groups.c.countable > sa.literal_column("0"))
        .order_by(groups.c.id.desc())
    )
    return query if older_than is None else query.where(groups.c.id < older_than)
