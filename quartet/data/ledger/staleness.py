"""Verification of the lag bound, from the versions in the stored trajectories and what the trainer left out."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from quartet.data.blobs import DamagedBlobError
from quartet.data.ledger.batches import FRESH
from quartet.data.ledger.part import LedgerPart
from quartet.data.schema import batches, trajectories, uses
from quartet.types import BatchState

_MASKED = sa.func.coalesce(batches.c.metrics["masked_tokens"].as_integer(), 0).label("masked_tokens")
_OLD_USES = (
    sa.select(uses.c.batch_id, batches.c.start_version, _MASKED, trajectories.c.blob)
    .select_from(uses.join(batches, uses.c.batch_id == batches.c.id).join(trajectories))
    .where(
        batches.c.state == BatchState.COMMITTED,
        uses.c.role == FRESH,
        trajectories.c.oldest_version < batches.c.start_version - sa.bindparam("max_lag"),
    )
)
"""Fresh uses of trajectories with a token that is too old: few, and each batch must have masked these tokens."""


class Staleness(LedgerPart):
    def over_lag(self, max_lag: int) -> Iterator[str]:
        """One sentence per committed batch that holds more too old fresh tokens than its trainer says it masked.

        A batch with a record that retention deleted, or that is damaged, cannot be judged and is passed over. Whether
        the trainer masked what it says is what an audit finds out (`quartet.observe.audit`).
        """
        with self._database.read() as connection:
            rows = connection.execute(_OLD_USES, {"max_lag": max_lag}).all()
        by_batch: dict[int, list[Any]] = {}
        for row in rows:
            by_batch.setdefault(row.batch_id, []).append(row)
        for batch_id, members in by_batch.items():
            oldest_allowed, masked = members[0].start_version - max_lag, members[0].masked_tokens
            counts = [self._tokens_before(member.blob, oldest_allowed) for member in members]
            too_old = sum(count for count in counts if count is not None)
            if None not in counts and too_old > masked:
                yield f"batch {batch_id} has {too_old} tokens older than version {oldest_allowed} and masked {masked}"

    def _tokens_before(self, blob: str, version: int) -> int | None:
        """Response tokens of an older version; None when the record cannot be read."""
        if not blob:
            return None
        try:
            calls = self._store.load(blob).calls
        except (DamagedBlobError, OSError):  # a finding of its own
            return None
        return sum(sampled < version for call in calls for sampled in call.versions)
