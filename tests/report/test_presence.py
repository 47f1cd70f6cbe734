"""A module's waits are spans and a share of its time, whichever way it tells of them."""

from itertools import pairwise
from pathlib import Path

import pytest

from quartet.ledger import Ledger
from quartet.telemetry import concurrent_clients
from quartet.telemetry import presence as presence_module
from quartet.telemetry.concurrent_clients import ConcurrentClients
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.telemetry.records import read_records
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import Span, read_spans


def spans_of(run: Path) -> list[Span]:
    extent = run_extent(run)
    assert extent is not None
    return read_spans(run, *extent).spans


def test_waits_are_spans_with_their_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "METRIC_SECONDS", 0.0)
    ledger, recorder = Ledger.create(tmp_path), Recorder(tmp_path, "trainer")
    presence = Presence(ledger.modules, "trainer", interval_seconds=0, recorder=recorder)
    presence.waits("4 trainable groups", "rollouts finish")
    presence.waits("4 trainable groups", "rollouts finish")
    presence.working("training")
    with presence.waiting("stragglers", "they end"):
        presence.beat()
    ledger.close()
    recorder.close()
    spans = spans_of(tmp_path)
    assert [(span.name, span.reason) for span in spans] == [("wait", "4 trainable groups"), ("wait", "stragglers")]
    shares = [record["waiting_fraction"] for record in read_records(tmp_path, "module")]
    assert shares and all(0 <= share <= 1 for share in shares)


def test_shared_server_waits_only_while_it_serves_no_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent_clients, "METRIC_SECONDS", 0.0)
    recorder = Recorder(tmp_path, "engine")
    served = ConcurrentClients(recorder, "serve", "requests")
    with served.join(), served.join():
        pass
    with served.join():
        pass
    recorder.close()
    spans = spans_of(tmp_path)
    assert [span.name for span in spans] == ["wait", "serve", "wait", "serve", "wait"]
    assert all(before.end <= after.start + 1e-5 for before, after in pairwise(spans))
    assert all(0 <= record["waiting_fraction"] <= 1 for record in read_records(tmp_path, "module"))
