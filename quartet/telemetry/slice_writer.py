"""Writer of the files that `quartet.telemetry.slices` describes, for one folder."""

from pathlib import Path

from quartet.telemetry.slices import slice_name, slot_of


class SliceWriter:
    """Slices (files by time) of one folder. A line is written to the slice of its time; times must not decrease."""

    def __init__(self, folder: Path, seconds: int) -> None:
        self._folder, self._seconds = folder, seconds
        self._begin, self._lines = -1, list[bytes]()

    def add(self, moment: float, line: bytes) -> None:
        begin = slot_of(moment, self._seconds)
        if begin != self._begin:
            self.flush()
            self._begin = begin
        self._lines.append(line)

    def flush(self) -> None:
        """Write the added lines. If that fails, the file is left as it was, the lines are lost, and an `OSError` that
        names the file is raised."""
        if not self._lines:
            return
        data, self._lines = b"\n".join(self._lines) + b"\n", []
        path = self._folder / slice_name(self._begin)
        self._folder.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError as error:
                file.truncate(size)  # an incomplete line would damage the next one
                error.filename = str(path)  # the error of a full disk names no file
                raise
