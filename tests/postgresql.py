"""What tests on a real PostgreSQL server need."""

import pytest

from benchmarks.postgresql_server import server_url as start

needs_postgresql = pytest.mark.postgresql


def server_url() -> str:
    """A server for this whole test run; it fails the test when PostgreSQL is not installed."""
    return start(fsync=False)
