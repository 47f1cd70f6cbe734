"""The timeline at long windows: a busy session looks busy, however short its spans are."""

import pytest

from quartet.telemetry.activities import ACTIVITIES
from quartet.telemetry.record import Recorder
from quartet.telemetry.spans import Span
from quartet.web import timeline
from quartet.web.density import PIECES, density

NOON = 1_699_999_200.0


def span(start: float, seconds: float, name: str, lane: str = "session 0") -> Span:
    return Span(start=NOON + start, seconds=seconds, name=name, lane=lane)


def test_no_two_activities_share_a_colour():
    assert len({activity.colour for activity in ACTIVITIES.values()}) == len(ACTIVITIES)


def test_shares_of_a_row_sum_up_to_the_time_that_its_spans_took():
    spans = [span(0, 100, "rollout"), span(-5, 10, "reset"), span(5, 40, "generate"), span(99.9, 30, "step")]
    pieces = density(spans, NOON, 100.0)
    width = 100.0 / PIECES
    spent = {
        name: width * sum(piece.get(name, 0) for piece in pieces) for name in ("rollout", "reset", "generate", "step")
    }
    assert spent == pytest.approx({"rollout": 0, "reset": 5, "generate": 40, "step": 0.1}, abs=1e-2)
    assert pieces[0] == {"reset": 1.0} and pieces[PIECES // 2] == {}


def test_a_busy_row_stands_as_density_and_a_quiet_one_span_by_span(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "MOST_SPANS", 2)
    now = [NOON]
    with Recorder(tmp_path, "worker", clock=lambda: now[0]) as recorder:
        for number in range(1000):
            now[0] = NOON + 0.3 * (number + 1)
            recorder.finished(span(0.3 * number, 0.15, "generate"))
            recorder.finished(span(0.3 * number + 0.15, 0.15, "step"))
        recorder.finished(span(0, 300, "generate", lane="session 1"))
    busy, quiet = timeline.window(tmp_path, NOON, 300.0)["rows"]
    assert (len(busy["density"]), busy["spans"]) == (PIECES, [])
    assert all(sum(piece.values()) == pytest.approx(1, abs=0.01) for piece in busy["density"]), "it was never idle"
    assert (len(quiet["spans"]), quiet["density"]) == (1, [])
