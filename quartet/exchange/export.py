"""Export of a run's trajectories to one file; the run may be live."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct

from quartet.config import Recipe
from quartet.errors import ConfigError, nearest
from quartet.exchange import WRITERS
from quartet.exchange.fingerprint import run_fingerprint
from quartet.exchange.record import Provenance, TrajectoryRecord
from quartet.exchange.stored import Selection, stored_families, stored_trajectories
from quartet.ledger import Ledger
from quartet.on_progress import OnProgress, no_progress
from quartet.registry import lookup


class ExportSummary(Struct, frozen=True, kw_only=True):
    """Result of an export. The numbers of trajectories, turns and tokens are those that were read."""

    output: str
    format: str
    trajectories: int
    turns: int
    response_tokens: int
    damaged: int
    """Number of trajectories left out because their blobs are missing or do not match their checksums."""
    bytes: int
    revisions: int | None = None
    """Number of revision trajectories written; None in other formats, which write each trajectory that was read."""


def export(
    ledger: Ledger,
    recipe: Recipe,
    kind: str,
    output: Path,
    selection: Selection,
    limit: int | None = None,
    on_progress: OnProgress = no_progress,
) -> ExportSummary:
    """Write the selected trajectories, oldest first, as `kind`: `jsonl`, `parquet`, `chat` or `revisions`.

    `limit` is the maximum number of trajectories written; revisions are made of all selected ones. The file is written
    atomically and replaces an existing file. Raise `ConfigError` for an unknown kind, for a selection that the kind
    cannot write, or if the run has no trajectory of a selected family.
    """
    writer_class = lookup("export format", kind, WRITERS)
    writer_class.refuse(kind, selection)
    known = stored_families(ledger)
    for family in selection.families:
        if family not in known:
            raise ConfigError(
                f"{ledger.run_dir} has no trajectory of family {family!r}",
                nearest(family, known) if known else "it has no trajectories yet",
            )
    sums: Counter[str] = Counter()
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    try:
        with partial.open("wb") as file:
            writer = writer_class(file, recipe, limit)
            for record in islice(_records(ledger, selection, sums), writer.max_read):
                writer.write(record)
                sums["trajectories"] += 1
                on_progress(sums["trajectories"], writer.max_read or 0)
                sums["turns"] += len(record.trajectory.turns)
                sums["response_tokens"] += record.trajectory.num_response_tokens
            writer.finish()
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return ExportSummary(
        output=str(output),
        format=kind,
        bytes=output.stat().st_size,
        revisions=writer.num_revisions,
        **{name: sums[name] for name in ("trajectories", "turns", "response_tokens", "damaged")},
    )


def _records(ledger: Ledger, selection: Selection, sums: Counter[str]) -> Iterator[TrajectoryRecord]:
    mark, run = run_fingerprint(ledger), ledger.run_dir.resolve().name
    for stored in stored_trajectories(ledger, selection):
        if stored.trajectory is None:
            sums["damaged"] += 1
            continue
        provenance = Provenance(
            run=run,
            purpose=selection.purpose,
            rollout_id=stored.rollout_id,
            group_id=stored.group_id,
            attempt=stored.attempt,
            created_at=stored.created_at,
        )
        yield TrajectoryRecord.of(stored.trajectory, provenance, mark)
