"""The picture of a run: success against rollouts, and labels that can be read."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quartet.report import plot
from quartet.report.plot import TOP, apart, draw_run, draw_tasks


@given(st.lists(st.floats(0, 100), max_size=3))
def test_labels_stand_apart_in_the_order_of_their_values(heights: list[float]) -> None:
    placed = apart(heights)
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    gaps = [placed[above] - placed[below] for below, above in pairwise(order)]
    assert all(gap >= 4 - 1e-9 for gap in gaps) and all(height <= TOP for height in placed)
    assert all(abs(height - true) <= 4 * 2 + 1e-9 for height, true in zip(placed, heights, strict=True))


def test_success_is_drawn_against_rollouts_and_no_label_lies_over_another(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plot, "Figure", lambda **options: drawn.append(Figure(**options)) or drawn[-1])
    run.close()
    tags = {"before/greedy": (0, 0.5), "during/10": (400, 0.8), "during/20": (800, 0.9), "after 20/greedy": (820, 1.0)}
    summary = {
        **{"success_before": 1.0, "success_after": 1.0, "success_control": 0.99},
        "learning_curve": [{"tag": tag, "rollouts": n, "success": success} for tag, (n, success) in tags.items()],
        "per_task": {"named": {"before": 1.0, "after": 1.0}},
    }
    draw_run(run.folder, summary)
    curve: Axes = drawn[0].axes[0]
    assert curve.get_xlabel() == "training rollouts"
    held_out = {line.get_label(): line.get_xydata().tolist() for line in curve.lines}
    assert held_out["held out, greedy: reported seeds"] == [[0, 50], [820, 100]]
    assert held_out["held out, greedy: selection seeds"] == [[400, 80], [800, 90]]
    assert [text.get_text() for text in curve.texts] == ["before 100 %", "after 100 %", "control 99 %"]
    boxes = [text.get_window_extent() for text in curve.texts]
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)
    assert not any(curve.bbox.overlaps(box) for box in boxes)


def test_a_family_without_a_result_has_no_bar_and_is_named() -> None:
    axes = Figure().subplots()
    draw_tasks(axes, {"lost": {"before": 0.5, "after": None}, "failed": {"before": 0.5, "after": 0.0}})
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lost (no result)", "failed"]
    after = axes.containers[0].datavalues.tolist()
    assert math.isnan(after[0]) and after[1] == 0
