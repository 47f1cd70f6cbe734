"""Progress display of long work."""

import time

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from quartet.terminal.console import PrintableConsole

LINE_SECONDS = 10.0


class Watched:
    """Context manager and `OnProgress` callback.

    Shows a bar on stderr in a terminal, a line every ten seconds elsewhere, and nothing if quiet. The bar is removed at
    the end.
    """

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        self._what, self._quiet = what, quiet
        self._console = PrintableConsole(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task(escape(what), total=None, note="")
        self._next_line = time.monotonic() + LINE_SECONDS

    def __enter__(self) -> "Watched":
        if self._draws:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._draws:
            self._bar.stop()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if self._draws:
            self._bar.update(self._task, completed=done, total=total or None, note=escape(note))
        elif not self._quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            of = f" of {total:,}" if total else ""
            self._console.print(f"{self._what}  {done:,}{of}  {note}".rstrip())

    @property
    def _draws(self) -> bool:
        return self._console.is_terminal and not self._quiet
