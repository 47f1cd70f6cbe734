"""Stored trajectories of a run, read page by page, so that an active run is not blocked and memory stays small."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace

from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.pictures import pictures_of
from quartet.ledger.schema import TrajectoryKind, trajectories
from quartet.ledger.trajectory_store import TrajectoryStore
from quartet.types import Purpose, Status, Trajectory

_PAGE_ROWS = 500
_COLUMNS = (
    *("id", "rollout_id", "group_id", "attempt", "kind", "purpose", "family", "status", "success"),
    *("blob", "created_at"),
)


class Selection(Struct, frozen=True, kw_only=True):
    """Selection of the trajectories to read."""

    purpose: Purpose = Purpose.TRAIN
    families: Sequence[str] = ()
    """Task families to read; empty for all."""
    successes_only: bool = False
    screenshots: bool = False
    """Read the pictures too, unless the disk budget has deleted them."""

    def takes(self, row: Any) -> bool:
        """Return whether a `trajectories` row is selected: only the last attempt of a rollout, with any status."""
        return (
            row.kind == TrajectoryKind.FINAL
            and row.purpose == self.purpose
            and (not self.families or row.family in self.families)
            and (row.success or not self.successes_only)
        )


class StoredTrajectory(Struct, frozen=True, kw_only=True):
    """A trajectory and its ids."""

    rollout_id: int
    group_id: int
    attempt: int
    created_at: float
    """Unix seconds."""
    trajectory: Trajectory | None
    """The trajectory; None if its blob is damaged."""


def stored_families(ledger: Ledger) -> list[str]:
    """Return the task families of all stored trajectories, sorted by name."""
    with ledger.read() as connection:
        return sorted(connection.execute(sa.select(trajectories.c.family).distinct()).scalars())


def stored_trajectories(ledger: Ledger, selection: Selection) -> Iterator[StoredTrajectory]:
    """Yield the selected trajectories, oldest first, up to the newest one at the start of the iteration."""
    with ledger.read() as connection:
        end = connection.execute(sa.select(sa.func.max(trajectories.c.id))).scalar() or 0
    columns, last = [trajectories.c[name] for name in _COLUMNS], 0
    while last < end:
        # The query filters by key only: with more conditions the database may sort the whole run for every page.
        page = sa.select(*columns).where(trajectories.c.id > last, trajectories.c.id <= end)
        with ledger.read() as connection:
            rows = connection.execute(page.order_by(trajectories.c.id).limit(_PAGE_ROWS)).all()
        yield from _loaded(ledger, [row for row in rows if selection.takes(row)], selection.screenshots)
        last = rows[-1].id


def _loaded(ledger: Ledger, rows: Sequence[Any], screenshots: bool) -> Iterator[StoredTrajectory]:
    found = {} if screenshots else ledger.store.load_many(row.blob for row in rows)
    with ledger.read() as connection:
        digests = pictures_of(connection, (row.id for row in rows)) if screenshots else {}
    for row in rows:
        trajectory = _with_pictures(ledger.store, row.blob, digests[row.id]) if screenshots else found[row.blob]
        if isinstance(trajectory, DamagedBlobError) or row.status == Status.DAMAGED:
            trajectory = None
        elif row.status == Status.CANCELLED:  # a finished fork that was cancelled with its parent
            trajectory = replace(trajectory, status=Status.CANCELLED)
        yield StoredTrajectory(
            rollout_id=row.rollout_id,
            group_id=row.group_id,
            attempt=row.attempt,
            created_at=row.created_at,
            trajectory=trajectory,
        )


def _with_pictures(store: TrajectoryStore, blob: str, digests: Sequence[str]) -> Trajectory | DamagedBlobError:
    try:
        return store.load(blob, digests)
    except DamagedBlobError:  # or the disk budget deleted the pictures after the page was read
        return store.load_many([blob])[blob]
