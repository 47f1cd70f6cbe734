"""A ledger on either database."""

import pytest

from quartet.ledger import Ledger
from tests.ledger.samples import FakeClock
from tests.postgresql import needs_postgresql, server_url


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave object stores beside PostgreSQL to the campaigns: each has tests with the other one's default."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("url") == "postgresql" and params.get("files", "local") != "local":
            item.add_marker(pytest.mark.campaign)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def url_of(database: str) -> str:
    """Return the setting `ledger.url` for `sqlite` or `postgresql`."""
    return "" if database == "sqlite" else server_url()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def url(request) -> str:
    """The place of a test's ledger: every test of its behaviour runs on both databases."""
    return url_of(request.param)


@pytest.fixture
def ledger(tmp_path, clock, url):
    ledger = Ledger.create(tmp_path / "run", seed=5, clock=clock, url=url)
    ledger.policies.register_initial("policies/v000000")
    yield ledger
    ledger.close()
