"""Follows a run's records as they are written: what is new since the last look, from every process, in order.

Of metrics it takes the sums over ten seconds, of spans every one. A follower that is made with an earlier one's
`cursor` goes on where that one stopped.
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
    """What one role recorded in ten seconds."""

    role: str
    slot: Slot


class News(msgspec.Struct, frozen=True):
    """What came since the last look, each list by time."""

    sums: list[Sums]
    spans: list[Span]


class Place(msgspec.Struct):
    """How far one folder has been read: the slice it is in, and the byte of it."""

    begin: float
    offset: int = 0


Cursor = dict[str, Place]
"""By folder, relative to the run's."""


class Follower:
    """Reads new lines of all files of a run."""

    def __init__(self, run_dir: Path, cursor: Cursor | None = None) -> None:
        self._run_dir = run_dir
        self.cursor: Cursor = cursor or {}
        """How far it has read; it grows with the number of processes, not with what they wrote."""

    def read(self) -> News:
        """Everything new. Raises `RecordsError` for a run that an older Quartet recorded."""
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
        return News(sorted(sums, key=lambda item: item.slot.begin), sorted(spans, key=lambda span: span.end))

    def _new(self, writer: Writer, folder: Path, seconds: int, decode: LineDecoder[Any]) -> list[Any]:
        """The new lines of one folder whose files cover `seconds` each, decoded."""
        place = self.cursor.setdefault(str(folder.relative_to(self._run_dir)), Place(writer.started_at))
        found = []
        for path in slice_files(folder, place.begin, time.time() + seconds, seconds=seconds):
            begin = float(path.stem)
            offset = place.offset if begin <= place.begin else 0
            lines, offset = complete_lines(path, offset)
            found += decode(lines)
            place.begin, place.offset = begin, offset
        return found
