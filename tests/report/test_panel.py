"""The panel and the plain line say who waits for what."""

import pytest
from msgspec.structs import replace
from rich.console import Console

from quartet.ledger import Ledger
from quartet.ledger.results import FamilyResult
from quartet.report.held_out import HeldOutResult
from quartet.report.labels import HELD_OUT_SAMPLED
from quartet.report.panel import _roughly, panel, plain_line, stopped_panel
from quartet.report.standings import PolicyStanding
from quartet.report.status import StatusReader
from quartet.telemetry.presence import Presence
from quartet.train.starvation import SOLVED


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


def test_a_solved_run_is_not_advised_to_raise_a_limit(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("policy")
    ledger.request_stop(f"{SOLVED}all rollouts succeeded")
    console = Console(width=120, record=True)
    console.print(stopped_panel(StatusReader(tmp_path, ledger).read()))
    shown = console.export_text()
    assert "train it on harder ones" in shown and "raise a limit" not in shown
    ledger.close()


@pytest.mark.parametrize(("seconds", "shown"), [(-0.3, "0 s"), (119.0, "119 s"), (150.0, "2 min")])
def test_a_module_waits_for_whole_seconds_or_minutes_and_never_for_less_than_none(seconds: float, shown: str) -> None:
    """A difference of two machines' clocks may be negative."""
    assert _roughly(seconds) == shown


def test_no_figure_is_cut_off_in_a_terminal_of_80_columns(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("policy")
    read = StatusReader(tmp_path, ledger).read()
    ledger.close()
    policies = [
        PolicyStanding(
            name=name,
            trained=True,
            success_recent=1.0,
            train_step=123_456,
            version=123_456,
            served_version=123_456,
            mean_lag=12.34,
        )
        for name in ("even", "odd")
    ]
    status = replace(
        read, success_recent=1.0, train_step=123_456, policy_version=123_457, mean_lag=12.34, policies=policies,
        training_rollouts=12_345_678, rollouts_per_second=1234.5, generated_tokens_per_second=1_234_567,
        prompt_tokens_per_second=7_654_321, rollouts={"queued": 10_001, "leased": 10_002},
        groups=read.groups | {"open": 10_003, "trainable": 10_004},
    )  # fmt: skip
    figures = ("100 %", "123,456", "123,457", "12.34", "12,345,678", "10,004")
    live = ("1,234.5", "1,234,567", "7,654,321", "10,001", "10,002", "10,003")
    for drawn, shown_figures in ((panel(status), (*figures, *live)), (stopped_panel(status), figures)):
        console = Console(width=80, record=True)
        console.print(drawn)
        shown = console.export_text()
        assert "…" not in shown
        assert [figure for figure in shown_figures if figure not in shown] == []


def test_a_run_at_rest_shows_the_success_of_its_evaluations(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("policy")
    status = StatusReader(tmp_path, ledger).read()
    ledger.close()
    before, after = (
        HeldOutResult(time=0.0, version=version, train_step=version, success=success, together=FamilyResult(1, 1))
        for version, success in ((0, 0.34), (50, 0.92))
    )
    for results, shown in (([before, after], "34 % → 92 % at train step 50"), ([before], "34 % at train step 0")):
        console = Console(width=80, record=True)
        console.print(stopped_panel(status, "RUN", {HELD_OUT_SAMPLED: results}))
        assert f"held-out success, sampled  {shown}" in console.export_text()
