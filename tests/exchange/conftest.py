"""The fixtures of the ledger's tests: trajectories come from one and go into one."""

from tests.ledger.conftest import clock, ledger, url

__all__ = ["clock", "ledger", "url"]
