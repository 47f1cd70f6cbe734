"""Display of a live run: in a terminal a panel, elsewhere a line every few seconds and one for each alarm."""

import time
from types import TracebackType

from rich.live import Live

from quartet.report.alarms import Alarm, read_alarms
from quartet.report.alarms.announced import Announced
from quartet.report.panel import panel, plain_line
from quartet.report.status import RunStatus, StatusReader
from quartet.terminal.console import PrintableConsole

PANEL_SECONDS = 1.0
LINE_SECONDS = 5.0


class LiveDisplay:
    """Panel in a terminal; lines if the output is a pipe or a file; nothing if quiet."""

    def __init__(self, reader: StatusReader, *, quiet: bool = False) -> None:
        self._reader, self._quiet = reader, quiet
        self._console = PrintableConsole(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._next = 0.0
        self._announced = Announced()

    def __enter__(self) -> "LiveDisplay":
        if self._panel:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._panel:
            self._live.stop()

    def tick(self) -> None:
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (PANEL_SECONDS if self._panel else LINE_SECONDS)
        status = self._reader.read()
        alarms = self._alarms(status)
        if self._panel:
            self._live.update(panel(status, alarms), refresh=True)
            return
        for line in (*self._announced.lines(alarms), plain_line(status)):
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def note(self, text: str) -> None:
        """Print a line that stays above the panel."""
        if not self._quiet:
            self._console.print(text)

    def _alarms(self, status: RunStatus) -> list[Alarm]:
        reader = self._reader
        return read_alarms(reader.run_dir, reader.ledger, reader.recipe, status) if reader.recipe else []

    @property
    def _panel(self) -> bool:
        return self._console.is_terminal and not self._quiet
