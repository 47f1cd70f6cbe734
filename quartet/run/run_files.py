"""Names of the files that Quartet writes into a run's folder. Quartet deletes no other files there."""

import shutil
from pathlib import Path

from quartet.access.token import FILE as TOKEN
from quartet.ledger.database import drop_database, has_database
from quartet.ledger.object_blobs import drop_objects

LOCK = "supervisor.pid"
"""Lock file of a run, created first and kept after the run's end."""
NAMES = frozenset(
    {
        *("config.toml", "config.toml.writing", LOCK, "loading.lock", "computing", "manager.lock", TOKEN),
        *("summary.json", "summary.json.writing", "success.png", "notes.json", "notes.json.writing"),
        *("ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal", "ledger.sqlite-journal", "ledger.json"),
        *("bells", "notifications", "blobs", "policies", "trainer", "control", "evaluations", "evaluation", "logs"),
        *("metrics", "spans", "rollups", "metrics.jsonl", "spans.jsonl", "tokens", "receipts", "sinks", "tensorboard"),
        *("displays", "journals"),
    }
)
"""Top-level files and folders of a run, including those of older versions."""


def is_run(folder: Path) -> bool:
    """Return whether Quartet started a run in this folder.

    A `config.toml` alone does not show this, since other programs use that name.
    """
    return (folder / LOCK).is_file() or has_database(folder)


def foreign_names(folder: Path) -> list[str]:
    """Return the names in a folder that are not Quartet's, sorted; empty if the folder does not exist."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in NAMES) if folder.is_dir() else []


def clear_run(run_dir: Path) -> None:
    """Delete the run's ledger and blobs, wherever they are stored, and its files, except the lock and foreign files."""
    drop_objects(run_dir)
    drop_database(run_dir)
    for name in NAMES - {LOCK}:
        entry = run_dir / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
