"""The fixtures of the ledger's tests: what the data manager decides about lies in one."""

from tests.ledger.conftest import clock, ledger, url

__all__ = ["clock", "ledger", "url"]
