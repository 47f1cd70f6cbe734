"""The files of a run's folder that hold its ledger, or name the server that does."""

from pathlib import Path

SQLITE_FILE = "ledger.sqlite"
LOCATION_FILE = "ledger.json"
"""Names the server and schema of a ledger on PostgreSQL."""


def has_database(run_dir: Path) -> bool:
    """Return whether a ledger was made for this run."""
    return (run_dir / SQLITE_FILE).exists() or (run_dir / LOCATION_FILE).exists()
