"""The panel and the plain line say who waits for what."""

from rich.console import Console

from quartet.data.ledger import Ledger
from quartet.observe.panel import panel, plain_line
from quartet.observe.presence import Presence
from quartet.observe.status import StatusReader


def test_panel_and_line_explain_every_wait(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.register_initial_policy("policy")
    Presence(ledger, "trainer", interval_seconds=0).waits("4 trainable groups", "rollouts finish")
    Presence(ledger, "engine", interval_seconds=0).working("serving")
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
