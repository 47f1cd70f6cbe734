"""Verification: does the ledger keep its promises, and is every blob what its name says?"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, to_builtins

from quartet.data.blobs import DamagedBlobError
from quartet.data.ledger.totals import RunTotals
from quartet.data.schema import batches, groups, rollouts, trajectories
from quartet.types import BatchState, GroupState, RolloutState, Status

_PAGE_ROWS = 1000
_STATES = ((rollouts, RolloutState), (groups, GroupState), (batches, BatchState))


class Finding(Struct, frozen=True, kw_only=True):
    """Something that must not be. `kind` is a short snake_case word."""

    kind: str
    what: str


class CheckReport(Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found."""

    trajectories: int
    blobs: int
    """Different ones that were read."""
    findings: list[Finding]

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


class Check(RunTotals):
    def check(self) -> CheckReport:
        """Read the whole ledger and every blob it refers to; takes about a second per thousand trajectories.

        A blob that was known to be damaged (its trajectory is marked so) is no finding.
        """
        findings = [*self._unknown_states(), *self._broken_promises()]
        seen: set[str] = set()
        count = 0
        for row in self._all_trajectories():
            count += 1
            for blob in {row.blob, row.screenshots_blob} - seen - {None}:
                seen.add(blob)
                findings += self._damage(row.id, blob)
        return CheckReport(trajectories=count, blobs=len(seen), findings=findings)

    def _all_trajectories(self) -> Iterator[Any]:
        """Page by page, so that a run at work is not held up."""
        last = 0
        columns = (trajectories.c.id, trajectories.c.blob, trajectories.c.screenshots_blob)
        while True:
            page = sa.select(*columns).where(trajectories.c.id > last, trajectories.c.status != Status.DAMAGED)
            with self._database.read() as connection:
                rows = connection.execute(page.order_by(trajectories.c.id).limit(_PAGE_ROWS)).all()
            if not rows:
                return
            yield from rows
            last = rows[-1].id

    def _damage(self, trajectory_id: int, blob: str) -> list[Finding]:
        try:
            self._store.blobs.get(blob)
        except DamagedBlobError as error:
            return [Finding(kind="blob_damaged", what=f"trajectory {trajectory_id}: {error.what}")]
        return []

    def _unknown_states(self) -> list[Finding]:
        findings: list[Finding] = []
        for table, states in _STATES:
            unknown = sa.select(table.c.id, table.c.state).where(table.c.state.not_in(list(states)))
            with self._database.read() as connection:
                rows = connection.execute(unknown.limit(_PAGE_ROWS)).all()
            findings += [Finding(kind="unknown_state", what=f"{table.name} {row.id} is {row.state!r}") for row in rows]
        return findings

    def _broken_promises(self) -> list[Finding]:
        totals = self.totals()
        counts = {
            "lost": (totals.lost, "rollouts or trajectories neither trained, nor dropped with a reason, nor waiting"),
            "trained_twice": (totals.trained_twice, "rollouts that two committed batches trained on"),
        }
        return [Finding(kind=kind, what=f"{count} {what}") for kind, (count, what) in counts.items() if count]
