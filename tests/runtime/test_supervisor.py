"""What the supervisor does when a module dies, and while the ledger's server is away."""

from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.data.ledger import Ledger
from quartet.errors import ConfigError, LedgerUnreachableError
from quartet.runtime import supervisor as supervisor_module
from quartet.runtime.supervisor import Supervisor


@pytest.fixture
def supervisor(tmp_path):
    ledger = Ledger.create(tmp_path / "run")
    yield Supervisor(bandit_recipe(Path("unused")), tmp_path / "run", ledger)
    ledger.close()


def away_for(looks: int):
    """A condition whose first looks do not reach the ledger."""
    answers = iter([None] * looks)

    def condition() -> str:
        for _ in answers:
            raise LedgerUnreachableError("cannot reach the ledger")
        return "back"

    return condition


def test_it_outlasts_a_server_that_comes_back_and_says_once_that_it_is_away(supervisor, caplog):
    assert supervisor.run_until(away_for(3)) == "back"
    assert caplog.messages == ["cannot reach the ledger"]


def test_it_ends_when_the_server_stays_away(supervisor, monkeypatch):
    monkeypatch.setattr(supervisor_module, "LEDGER_PATIENCE_SECONDS", 0.0)
    with pytest.raises(LedgerUnreachableError):
        supervisor.run_until(away_for(3))


def test_a_module_that_refuses_its_recipe_is_not_started_again(supervisor):
    """Nothing has written its `config.toml`."""
    with supervisor, pytest.raises(ConfigError, match="module 'manager' cannot run: no recipe at"):
        supervisor.start("manager")
        supervisor.run_until(lambda: None)
    assert [event.fields["code"] for event in supervisor._ledger.events()] == [2]


def test_a_death_while_the_ledger_is_away_is_told_when_it_is_back(supervisor, monkeypatch):
    event, away = Ledger.event, iter([True])

    def reached_the_second_time(ledger: Ledger, kind: str, **fields: object) -> None:
        if next(away, False):
            raise LedgerUnreachableError("cannot reach the ledger")
        event(ledger, kind, **fields)

    monkeypatch.setattr(Ledger, "event", reached_the_second_time)
    with supervisor, pytest.raises(ConfigError, match="no recipe at"):
        supervisor.start("manager")
        supervisor.run_until(lambda: None)
    assert [event.fields["code"] for event in supervisor._ledger.events()] == [2]
