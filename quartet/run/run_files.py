"""What Quartet writes into the folder of a run: the only names it ever deletes there."""

import shutil
from pathlib import Path

from quartet.access.token import FILE as TOKEN
from quartet.ledger.database import drop_database, has_database

LOCK = "supervisor.pid"
"""There from a run's first moment on, and left when it ends."""
NAMES = frozenset(
    {
        *("config.toml", "config.toml.writing", LOCK, "loading.lock", "manager.lock", "evaluation", TOKEN),
        *("summary.json", "summary.json.writing", "success.png"),
        *("ledger.sqlite", "ledger.sqlite-shm", "ledger.sqlite-wal", "ledger.sqlite-journal", "ledger.json"),
        *("bells", "blobs", "policies", "trainer", "control", "evaluations", "logs"),
        *("metrics", "spans", "rollups", "metrics.jsonl", "spans.jsonl", "tokens", "receipts", "sinks", "tensorboard"),
    }
)
"""Files and folders at the top of a run, of older runs too."""


def is_run(folder: Path) -> bool:
    """Whether Quartet began a run here. No name of a recipe decides: `config.toml` may be anybody's."""
    return (folder / LOCK).is_file() or has_database(folder)


def foreign_names(folder: Path) -> list[str]:
    """What lies in a folder and is not Quartet's, sorted; nothing of a folder that is not there."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name not in NAMES) if folder.is_dir() else []


def clear_run(run_dir: Path) -> None:
    """Delete the run: its ledger, wherever it lies, and its files, but for the lock and what is not Quartet's."""
    drop_database(run_dir)
    for name in NAMES - {LOCK}:
        entry = run_dir / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
