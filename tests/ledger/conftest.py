import pytest

from quartet.ledger import Ledger
from tests.ledger.samples import FakeClock
from tests.postgresql import needs_postgresql, server_url


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def url(request) -> str:
    """Where the ledger of a test lies: every test of its behaviour runs on both databases."""
    return "" if request.param == "sqlite" else server_url()


@pytest.fixture
def ledger(tmp_path, clock, url):
    ledger = Ledger.create(tmp_path / "run", seed=5, clock=clock, url=url)
    ledger.register_initial_policy("policies/v000000")
    yield ledger
    ledger.close()
