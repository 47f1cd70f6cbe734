"""Writing side of `quartet.telemetry.slices`: appends to the slices of one folder."""

from pathlib import Path

from quartet.telemetry.slices import slice_name, slot_of


class SliceFiles:
    """Slices of one folder; a line goes to the slice of its time, created with its first line. Times never decrease."""

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
        """Write the added lines. Raises `OSError` that names the file, which is left as before; the lines are lost."""
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
                file.truncate(size)  # half a line would damage the next one
                error.filename = str(path)  # a full disk does not say where
                raise
