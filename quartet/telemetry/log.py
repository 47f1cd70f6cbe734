"""Logs: one JSON object per line, in the run's `logs/MODULE.jsonl`."""

import logging
import sys
from pathlib import Path

import msgspec

from quartet.telemetry.log_limit import RepeatLimit
from quartet.terminal.printable import printable


class JsonFormatter(logging.Formatter):
    """Formatter that writes time, level, logger, message and, as one string, a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return printable(msgspec.json.encode(entry).decode())  # `printable` uses escapes that are valid in JSON


class LogFile(logging.FileHandler):
    """Log handler that drops records silently if the disk is full."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (the base class's name)
        # The ledger is on the same disk, and its error ends the run with advice.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def log_to_file(run_dir: Path, module: str) -> None:
    """Write the log records of this process (level info and above) to the run's log file of `module`."""
    folder = run_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handler = LogFile(folder / f"{module}.jsonl")
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RepeatLimit())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
