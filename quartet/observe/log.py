"""Logs: one JSON object per line in `logs/MODULE.jsonl` of the run."""

import logging
from pathlib import Path

import msgspec

from quartet.observe.log_limit import RepeatLimit
from quartet.terminal.printable import printable


class JsonFormatter(logging.Formatter):
    """Time, level, module and message; a traceback as one string."""

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


def log_to_file(run_dir: Path, module: str) -> None:
    """Send this process's log records (info and above) to the run's log file of `module`."""
    folder = run_dir / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / f"{module}.jsonl")
    handler.setFormatter(JsonFormatter())
    handler.addFilter(RepeatLimit())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
