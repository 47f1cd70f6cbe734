"""What the supervisor does when a module dies, and while the ledger's server is away."""

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.data.ledger import Ledger
from quartet.errors import ConfigError, LedgerUnreachableError
from quartet.observe.presence import Presence
from quartet.observe.status import GIVEN_UP
from quartet.recipe_file import to_toml
from quartet.runtime import supervisor as supervisor_module
from quartet.runtime.supervisor import ModuleDiedError, Supervisor


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
    with supervisor, pytest.raises(ConfigError, match=r"'manager' cannot run: the run's .*is missing"):
        supervisor.start("manager")
        supervisor.run_until(lambda: None)
    assert [event.fields["code"] for event in supervisor._ledger.events()] == [2]


def test_what_the_run_before_said_is_not_up_though_its_process_id_is_back(supervisor, monkeypatch):
    """As in a container, where process ids begin anew."""
    ledger = supervisor._ledger
    with supervisor:
        supervisor.start("manager")
        pid = supervisor._processes["manager"].pid
        monkeypatch.setattr(os, "getpid", lambda: pid)
        with closing(Ledger.open(ledger.run_dir, clock=lambda: time.time() - 100)) as before:
            Presence(before, "manager", interval_seconds=0).working("admitting groups")
        assert not supervisor.are_up("manager")
        Presence(ledger, "manager", interval_seconds=0).working("admitting groups")
        assert supervisor.are_up("manager")


def test_a_silent_module_is_killed_and_started_again_until_its_restarts_are_used_up(tmp_path):
    """With no patience at all even a module at work is silent for too long."""
    runtime = {"heartbeat_timeout_seconds": 1e-6, "max_restarts_per_module": 1, "max_restart_delay_seconds": 0.01}
    recipe, ledger = bandit_recipe(Path("unused"), runtime=runtime), Ledger.create(tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text(to_toml(recipe))
    with Supervisor(recipe, tmp_path / "run", ledger) as supervisor:
        supervisor.start("env")
        with pytest.raises(ModuleDiedError, match="module 'env' died 2 times; last words"):
            supervisor.run_until(lambda: None)
    kinds = [event.kind for event in ledger.events()]
    ledger.close()
    assert sorted(kinds) == ["module_died"] * 2 + ["module_silent"] * 2


def test_a_death_while_the_ledger_is_away_is_told_when_it_is_back(supervisor, monkeypatch):
    event, away = Ledger.event, iter([True])

    def reached_the_second_time(ledger: Ledger, kind: str, **fields: object) -> None:
        if next(away, False):
            raise LedgerUnreachableError("cannot reach the ledger")
        event(ledger, kind, **fields)

    monkeypatch.setattr(Ledger, "event", reached_the_second_time)
    with supervisor, pytest.raises(ConfigError, match=r"config\.toml is missing"):
        supervisor.start("manager")
        supervisor.run_until(lambda: None)
    assert [event.fields["code"] for event in supervisor._ledger.events()] == [2]


def test_a_sink_that_cannot_run_is_given_up_and_the_run_goes_on(supervisor):
    """Nothing has written its `config.toml` either."""

    def given_up() -> str | None:
        kinds = [event.kind for event in supervisor._ledger.events()]
        return "given up" if "sink_given_up" in kinds else None

    with supervisor:
        supervisor.start("sink-prometheus")
        assert supervisor.run_until(given_up) == "given up"
        supervisor.start("sink-prometheus")  # as the next phase does
        assert supervisor.run_until(lambda: "and on it goes") == "and on it goes"
        assert not supervisor._processes
        assert supervisor._ledger.value(GIVEN_UP) == ["sink-prometheus"]
    assert [event.kind for event in supervisor._ledger.events()] == ["sink_given_up", "module_died"], "newest first"
