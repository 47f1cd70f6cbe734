"""The fixtures of the ledger's tests: trajectories come from one and go into one."""

from tests.manager.conftest import clock, ledger, url

__all__ = ["clock", "ledger", "url"]
