"""The fixtures of the ledger's tests: what the data manager decides about lies in one."""

import pytest

from tests.ledger.conftest import clock, ledger, url_of
from tests.postgresql import needs_postgresql

__all__ = ["clock", "ledger", "url"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[needs_postgresql, pytest.mark.campaign])])
def url(request) -> str:
    """The place of a test's ledger. The ledger's own tests use both databases; here the campaigns repeat them."""
    return url_of(request.param)
