"""Read a run's new records, by time, from the files of all its processes.

A follower reads metrics as sums over ten seconds, and every span. A follower that is made with the `cursor` of an
earlier one continues where the earlier one stopped.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from quartet.telemetry.line_decoder import LineDecoder
from quartet.telemetry.rollup import ROLLUP_SECONDS, SLOTS_PER_FILE, Slot, decode_slots
from quartet.telemetry.slices import METRICS, SLICE_SECONDS, SPANS, Writer, complete_lines, slice_files, writers
from quartet.telemetry.spans import Span, decode_spans


class Sums(msgspec.Struct, frozen=True):
    """Metrics of one role over ten seconds."""

    role: str
    slot: Slot
    train_step: int = 0
    """Newest train step at that time."""


class News(msgspec.Struct, frozen=True):
    """Records since the last read, both lists by time."""

    sums: list[Sums]
    spans: list[Span]


class Place(msgspec.Struct):
    """Read position in one folder: the start of the current file (Unix seconds), and the byte offset in that file."""

    begin: float
    offset: int = 0


class Cursor(msgspec.Struct):
    """Position of a follower in the records of a run."""

    places: dict[str, Place] = msgspec.field(default_factory=dict[str, Place])
    """Read positions, by the folder's path relative to the run's folder: one or two per process, independent of the
    number of records."""
    train_step: int = 0
    """Newest train step in the records read."""


class Follower:
    """Reader of new lines in all files of a run."""

    def __init__(self, run_dir: Path, cursor: Cursor | None = None) -> None:
        self._run_dir = run_dir
        self.cursor = cursor or Cursor()

    def read(self) -> News:
        """Return all new records. Raise `RecordsError` for records of an older Quartet."""
        finest = ROLLUP_SECONDS[0]
        sums = [
            Sums(writer.role, slot)
            for writer in writers(self._run_dir, METRICS)
            for slot in self._new(writer, writer.rollups(finest), finest * SLOTS_PER_FILE, decode_slots)
        ]
        spans = [
            msgspec.structs.replace(span, role=writer.role)
            for writer in writers(self._run_dir, SPANS)
            for span in self._new(writer, writer.folder, SLICE_SECONDS, decode_spans)
        ]
        in_order = sorted(sums, key=lambda item: item.slot.begin)
        return News([self._placed(item) for item in in_order], sorted(spans, key=lambda span: span.end))

    def _placed(self, sums: Sums) -> Sums:
        """Return the sums, which come in the order of time, with the newest train step."""
        if rollup := sums.slot.series.get("train/step"):
            self.cursor.train_step = int(rollup.last)
        return msgspec.structs.replace(sums, train_step=self.cursor.train_step)

    def _new(self, writer: Writer, folder: Path, seconds: int, decode: LineDecoder[Any]) -> list[Any]:
        """Decode the new lines of one folder, each file of which covers `seconds`."""
        place = self.cursor.places.setdefault(str(folder.relative_to(self._run_dir)), Place(writer.started_at))
        found = []
        for path in slice_files(folder, place.begin, time.time() + seconds, seconds=seconds):
            begin = float(path.stem)
            offset = place.offset if begin <= place.begin else 0
            lines, offset = complete_lines(path, offset)
            found += decode(lines)
            place.begin, place.offset = begin, offset
        return found
