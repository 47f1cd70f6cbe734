import pytest
from samples import FakeClock

from quartet.data.ledger import Ledger


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(tmp_path, clock):
    ledger = Ledger.create(tmp_path / "run", seed=5, clock=clock)
    ledger.register_initial_policy("policies/v000000")
    yield ledger
    ledger.close()
