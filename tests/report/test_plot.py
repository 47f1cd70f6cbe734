"""The picture of a run: seconds or minutes, and labels that can be read."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quartet.report import plot
from quartet.report.plot import TOP, apart, draw_run


@given(st.lists(st.floats(0, 100), max_size=3))
def test_labels_stand_apart_in_the_order_of_their_values(heights: list[float]) -> None:
    placed = apart(heights)
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    gaps = [placed[above] - placed[below] for below, above in pairwise(order)]
    assert all(gap >= 4 - 1e-9 for gap in gaps) and all(height <= TOP for height in placed)
    assert all(abs(height - true) <= 4 * 2 + 1e-9 for height, true in zip(placed, heights, strict=True))


@pytest.mark.parametrize(("seconds", "unit"), [(30.5, "seconds"), (119, "seconds"), (705, "minutes")])
def test_no_label_lies_over_another_and_the_time_is_in_its_unit(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, unit: str
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plot, "Figure", lambda **options: drawn.append(Figure(**options)) or drawn[-1])
    run.close()
    shares = {"success_before": 1.0, "success_after": 1.0, "success_control": 0.99}
    draw_run(run.folder, {**shares, "train_seconds": seconds, "per_task": {"named": {"before": 1.0, "after": 1.0}}})
    curve: Axes = drawn[0].axes[0]
    assert curve.get_xlabel() == f"{unit} of training"
    assert [text.get_text() for text in curve.texts] == ["before 100 %", "after 100 %", "control 99 %"]
    boxes = [text.get_window_extent() for text in curve.texts]
    assert not any(one.overlaps(other) for one in boxes for other in boxes if one is not other)
    assert not any(curve.bbox.overlaps(box) for box in boxes)
