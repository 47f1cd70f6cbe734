"""The panel and the plain line say who waits for what."""

import pytest
from rich.console import Console

from quartet.ledger import Ledger
from quartet.report.panel import _roughly, panel, plain_line, stopped_panel
from quartet.report.status import StatusReader
from quartet.telemetry.presence import Presence


def test_panel_and_line_explain_every_wait(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("policy")
    Presence(ledger.modules, "trainer", interval_seconds=0).waits("4 trainable groups", "rollouts finish")
    Presence(ledger.modules, "engine", interval_seconds=0).working("serving")
    status = StatusReader(tmp_path, ledger).read()
    console = Console(width=120, record=True)
    console.print(panel(status))
    shown = console.export_text()
    assert "waits for 4 trainable groups" in shown
    assert "rollouts finish" in shown
    assert "serving" in shown
    assert "trainer waits for 4 trainable groups (until rollouts finish)" in plain_line(status)
    assert status.to_dict()["groups"]["trainable"] == 0
    ledger.close()


def test_a_run_at_rest_says_why_it_ended_and_shows_no_module(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("policy")
    Presence(ledger.modules, "engine", interval_seconds=0).working("serving")

    def shown() -> str:
        console = Console(width=120, record=True)
        console.print(stopped_panel(StatusReader(tmp_path, ledger).read()))
        return console.export_text()

    assert "interrupted" in shown() and "quartet train RUN/config.toml --run-dir RUN --resume" in shown()
    ledger.request_stop("train.max_seconds = 5 reached")
    assert "ended: train.max_seconds = 5 reached" in shown()
    assert "--run-dir RUN --resume --set train.max_seconds=10" in shown()
    assert "serving" not in shown()
    ledger.close()


@pytest.mark.parametrize(("seconds", "shown"), [(-0.3, "0 s"), (119.0, "119 s"), (150.0, "2 min")])
def test_a_module_waits_for_whole_seconds_or_minutes_and_never_for_less_than_none(seconds: float, shown: str) -> None:
    """A difference of two machines' clocks may be negative."""
    assert _roughly(seconds) == shown
