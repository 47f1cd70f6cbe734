"""Logs: one JSON object per line in `logs/MODULE.jsonl` of the run."""

import logging
import sys
from pathlib import Path

import msgspec

from quartet.telemetry.log_limit import RepeatLimit
from quartet.terminal.printable import printable


class JsonFormatter(logging.Formatter):
    """Formatter for time, level, logger and message; a traceback is one string."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return printable(msgspec.json.encode(entry).decode())  # its escapes are those of JSON


class LogFile(logging.FileHandler):
    """Log handler for a disk that may be full: records that cannot be written are lost, and not printed either."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the base class's name)
        # The same disk holds the ledger, whose error ends the run and says what to do.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to_file(run_dir: Path, module: str) -> None:
    """Write this process's log records (info and above) to the run's log file of `module`."""
    folder = run_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handler = LogFile(folder / f"{module}.jsonl")
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RepeatLimit())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
