"""Display of a live run: a panel in a terminal, otherwise a line every few seconds and a line for each alarm."""

import time

from rich.live import Live

from quartet.errors import InterruptedByUser, LedgerError
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Print the alarms raised since the last line, unless the user stopped the run or its ledger is unreachable."""
        if self._panel:
            self._live.stop()
        elif not self._quiet and not isinstance(error, LedgerError | InterruptedByUser):
            self._print(*self._announced.lines(self._alarms(self._reader.read())))

    def tick(self) -> None:
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._next = now + (PANEL_SECONDS if self._panel else LINE_SECONDS)
        status = self._reader.read()
        alarms = self._alarms(status)
        if self._panel:
            self._live.update(panel(status, alarms), refresh=True)
        else:
            self._print(*self._announced.lines(alarms), plain_line(status))

    def note(self, text: str) -> None:
        """Print a line that stays above the panel."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True)  # a command in it must stay whole

    def _print(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _alarms(self, status: RunStatus) -> list[Alarm]:
        reader = self._reader
        return read_alarms(reader.run_dir, reader.ledger, reader.recipe, status) if reader.recipe else []

    @property
    def _panel(self) -> bool:
        return self._console.is_terminal and not self._quiet
