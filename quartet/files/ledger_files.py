"""Names of the files in a run's folder that hold its ledger, or the location of its ledger."""

from pathlib import Path

SQLITE_FILE = "ledger.sqlite"
LOCATION_FILE = "ledger.json"
"""File with the server and schema of a ledger on PostgreSQL."""


def has_database(run_dir: Path) -> bool:
    """Return whether the run has a ledger."""
    return (run_dir / SQLITE_FILE).exists() or (run_dir / LOCATION_FILE).exists()
