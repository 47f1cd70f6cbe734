"""Figures of `quartet report` label their axes by what they show."""

import pytest
from matplotlib.figure import Figure

from quartet.report.paper.figures import FIGURES


@pytest.mark.parametrize(("name", "panels"), [("learning", 3), ("speed", 2)])
def test_time_with_evaluations_and_pauses_is_not_called_training_time(name: str, panels: int) -> None:
    figure = Figure()
    FIGURES[name].draw(figure, [])
    labels = [axes.get_xlabel() for axes in figure.axes if "minutes" in axes.get_xlabel()]
    assert labels == ["minutes since training began"] * panels
    assert "pauses" in FIGURES[name].caption
