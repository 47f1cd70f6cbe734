"""Queries about task families: success, number of groups, outcomes of the groups.

The queries read the newest groups or a fixed number of windows, so the time taken does not grow with the run.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, field
from sqlalchemy import Connection

from quartet.ledger.evaluations import cut_off, read_results
from quartet.ledger.results import FamilyResult
from quartet.ledger.schema import evaluations, families, groups, pool, replays
from quartet.ledger.statistics import judged
from quartet.types import EQUAL_REWARDS, GroupState, Purpose
from quartet.types.plan import BLIND, SAMPLED

GROUPS_PER_POINT = 16
"""Number of groups behind each point of a curve. A point is the success rate over the family's newest judged groups at
the point's time."""
POINTS = 32
NEWEST_GROUPS = 2000
"""Number of newest groups of the run whose outcomes are counted."""
MOST_POOLED = 1000
"""Number at which the counting of stored successes stops."""


class Point(Struct, frozen=True, kw_only=True):
    """Success of a family at one time of the run."""

    train_step: int
    """Number of train steps done when the newest group of the point was judged."""
    success: float
    """Success rate over the point's countable rollouts."""
    rollouts: int
    """Number of the point's countable rollouts."""


class Fates(Struct, kw_only=True):
    """Outcomes of a family's groups, among the newest `NEWEST_GROUPS` of the run."""

    groups: int = 0
    rollouts: int = 0
    trained: int = 0
    on_the_way: int = 0
    """Number of groups that are open, closed, trainable or claimed."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of dropped groups by reason (`why_dropped`)."""
    turn_limits: Counter[int] = field(default_factory=Counter)
    """Number of groups by their limit of turns."""
    group_sizes: Counter[int] = field(default_factory=Counter)
    """Number of groups by their number of rollouts."""
    replayed: int = 0
    """Number of groups that a stored success joined."""


class FamilyRow(Struct, frozen=True, kw_only=True):
    """One family on the page "Tasks"."""

    family: str
    train_groups: int
    """Number of training groups admitted since the run began."""
    curve: list[Point]
    """Training success, oldest first."""
    fates: Fates
    pooled: int
    """Number of stored successes that may be replayed, counted up to `MOST_POOLED`."""
    held_out: dict[str, FamilyResult]
    """Results of the evaluations on held-out seeds, by tag."""

    @property
    def success(self) -> float | None:
        """Success rate over the newest groups; None before the first group."""
        return self.curve[-1].success if self.curve else None

    @property
    def gain(self) -> float:
        """Increase of the training success from the first to the newest point; 0 before the first."""
        return self.curve[-1].success - self.curve[0].success if self.curve else 0.0

    @property
    def rollouts_text(self) -> str:
        """Number of training rollouts: exact if the newest groups all have the same size, otherwise estimated."""
        if not self.fates.groups:
            return "–"
        spent = self.train_groups * self.fates.rollouts / self.fates.groups
        return f"{spent:,.0f}" if len(self.fates.group_sizes) == 1 else f"≈ {spent:,.0f}"


def family_rows(
    connection: Connection, env: str, policy: str, *, only: str = "", points: int = POINTS
) -> list[FamilyRow]:
    """Return each family that was admitted for training or evaluated, by name, or only the family `only`.

    The training success is that of `policy`.
    """
    admitted = {row.family: row.train_groups for row in connection.execute(sa.select(families))}
    newest = connection.execute(sa.select(sa.func.max(groups.c.id))).scalar() or 0
    held_out = _held_out(connection, shown_evaluations(connection))
    fates = group_fates(connection)
    return [
        FamilyRow(
            family=family,
            train_groups=admitted.get(family, 0),
            curve=family_curve(connection, family, policy, newest, points),
            fates=fates.get(family, Fates()),
            pooled=_pooled(connection, env, family),
            held_out=held_out.get(family, {}),
        )
        for family in sorted({*admitted, *held_out})
        if only in ("", family)
    ]


def family_curve(
    connection: Connection, family: str, policy: str, newest_group: int, points: int = POINTS
) -> list[Point]:
    """Return a policy's training success in a family at up to `points` times of the run, oldest first.

    Each point covers the newest `GROUPS_PER_POINT` groups at its time.
    """
    edges = sorted({newest_group * n // points for n in range(1, points + 1)})
    window = judged(family, policy).where(groups.c.id <= sa.bindparam("edge")).limit(GROUPS_PER_POINT).subquery()
    query = sa.select(
        sa.func.max(window.c.judged_at_step).label("train_step"),
        sa.func.sum(window.c.successes).label("successes"),
        sa.func.sum(window.c.countable).label("countable"),
    )
    rows = [connection.execute(query, {"edge": edge}).one() for edge in edges]
    found = [
        Point(train_step=row.train_step, success=row.successes / row.countable, rollouts=row.countable)
        for row in rows
        if row.countable
    ]
    return [point for n, point in enumerate(found) if n == 0 or point != found[n - 1]]


def group_fates(connection: Connection) -> dict[str, Fates]:
    """Return the outcomes of the run's newest `NEWEST_GROUPS` groups, by family."""
    columns = [groups.c[name] for name in ("id", "family", "state", "reason", "countable", "successes", "max_turns")]
    joined = sa.select(replays.c.id).where(replays.c.group_id == groups.c.id).exists().label("replayed")
    newest = sa.select(groups.c.purpose, groups.c.num_rollouts, *columns, joined).order_by(groups.c.id.desc())
    fates: dict[str, Fates] = defaultdict(Fates)
    for row in connection.execute(newest.limit(NEWEST_GROUPS)):
        if row.purpose == Purpose.TRAIN:
            _add(fates[row.family], row)
    return dict(fates)


def why_dropped(row: Any) -> str:
    """Return in words why a group was dropped; for equal rewards, whether all rollouts failed or all succeeded."""
    if row.reason != EQUAL_REWARDS:
        return row.reason.replace("_", " ") or "no reason recorded"
    if row.successes == 0:
        return "all failed"
    return "all solved" if row.successes == row.countable else "all the same reward"


def _add(fates: Fates, row: Any) -> None:
    fates.groups += 1
    fates.rollouts += row.num_rollouts
    fates.turn_limits[row.max_turns] += 1
    fates.group_sizes[row.num_rollouts] += 1
    fates.replayed += row.replayed
    if row.state == GroupState.TRAINED:
        fates.trained += 1
    elif row.state == GroupState.DROPPED:
        fates.dropped[why_dropped(row)] += 1
    else:
        fates.on_the_way += 1


def shown_evaluations(connection: Connection) -> list[str]:
    """Return the tags of the first and the newest of the finished greedy evaluations; one that was cut off has not
    finished."""
    unfinished = sa.exists().where(groups.c.tag == evaluations.c.tag, groups.c.state == GroupState.OPEN)
    others = (evaluations.c.tag.like(f"%{how}") for how in (SAMPLED, BLIND))
    greedy = sa.select(evaluations.c.tag).where(~unfinished, ~cut_off(evaluations.c.tag), ~sa.or_(*others))
    first = connection.execute(greedy.order_by(evaluations.c.created_at).limit(1)).scalars().all()
    last = connection.execute(greedy.order_by(evaluations.c.created_at.desc()).limit(1)).scalars().all()
    return list(dict.fromkeys([*first, *last]))


def _held_out(connection: Connection, tags: Sequence[str]) -> dict[str, dict[str, FamilyResult]]:
    results: dict[str, dict[str, FamilyResult]] = defaultdict(dict)
    for tag in tags:
        for family, result in read_results(connection, tag).items():
            results[family][tag] = result
    return dict(results)


def _pooled(connection: Connection, env: str, family: str) -> int:
    # "0" comes right after "/": all keys that begin with "env/family/" lie between the two.
    prefix = f"{env}/{family}"
    of_family = (pool.c.task_key > f"{prefix}/", pool.c.task_key < f"{prefix}0", ~pool.c.outdated)
    some = sa.select(pool.c.id).where(*of_family).limit(MOST_POOLED).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()
