"""Check free disk space, and that the file system supports SQLite's locks."""

from collections.abc import Iterator
from pathlib import Path

from quartet.config import Disk
from quartet.doctor.base import Doctor, Finding, Place, lacks, note, ok, refused
from quartet.errors import SetupError
from quartet.files.disk import free_megabytes
from quartet.ledger.database.file_system import refuse_network_file_system


class DiskSpace(Doctor):
    """Check free disk space, and that the file system supports SQLite's locks."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        budget = place.recipe.disk if place.recipe else Disk()
        folder = _existing(place.runs)
        free, least = free_megabytes(folder), budget.min_free_megabytes
        if free < least:
            yield lacks(
                f"{free:,.0f} MB are free at {folder}, less than disk.min_free_megabytes = {least}", "free disk space"
            )
        elif free < least + budget.max_blob_megabytes:
            yield note(
                f"{free:,.0f} MB are free at {folder}; a run may keep {budget.max_blob_megabytes} MB of trajectories",
                "free disk space, or lower disk.max_blob_megabytes",
            )
        else:
            yield ok(f"{free:,.0f} MB are free at {folder}")
        if place.recipe is None or not place.recipe.ledger.url:
            try:
                refuse_network_file_system(folder)
            except SetupError as error:
                yield refused(error)
            else:
                yield ok(f"{folder} is on a local disk")


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    folder = folder.resolve()
    return next(one for one in (folder, *folder.parents) if one.is_dir())
