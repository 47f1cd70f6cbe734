"""Groups of one task family, newest first, in pages."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy import Connection

from quartet.ledger.schema import batches, groups
from quartet.types import Purpose

GROUPS_PER_PAGE = 40


class GroupPage(Struct, frozen=True, kw_only=True):
    """One page of groups with a countable member. Groups without one are left out, since their verdict says nothing
    about the task."""

    rows: Sequence[Any]
    """Rows with columns of `groups`, and the train step that used the group."""
    older_than: int | None
    """`older_than` of the next page; None if this is the last page."""


def list_groups(connection: Connection, family: str, older_than: int | None = None) -> GroupPage:
    """Return a page of the family's training groups with an id below `older_than`, newest first."""
    rows = connection.execute(group_query(family, older_than).limit(GROUPS_PER_PAGE + 1)).all()
    more = len(rows) > GROUPS_PER_PAGE
    rows = rows[:GROUPS_PER_PAGE]
    return GroupPage(rows=rows, older_than=rows[-1].id if more else None)


def group_query(family: str, older_than: int | None) -> sa.Select[Any]:
    """Return the query for a family's groups. It reads an index backwards.

    The condition on `countable` is written so that SQLite uses the index over groups with a countable member.
    """
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
