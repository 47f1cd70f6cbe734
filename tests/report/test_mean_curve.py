"""Mean over seeds of curves with different numbers of tokens."""

import pytest

from quartet.report.comparison.intervals import interval
from quartet.report.comparison.mean_curve import mean_curve


def test_seeds_are_interpolated_to_common_places_and_not_continued():
    mean = mean_curve([[(0, 0.0), (2, 1.0)], [(0, 0.5), (1, 0.5), (4, 0.5)]])
    assert [x for x, _ in mean] == [0, 1, 2], "the second seed alone goes to 4"
    assert [y.mean for _, y in mean] == pytest.approx([0.25, 0.5, 0.75])
    assert mean[0].y == interval([0.0, 0.5]) and mean[1].y.low == mean[1].y.high == 0.5


def test_the_newest_of_several_results_at_one_place_counts():
    assert mean_curve([[(0, 0.0), (3, 0.2), (3, 0.8)]])[-1].y.mean == pytest.approx(0.8)


@pytest.mark.parametrize("seeds", [[], [[(0, 0.5)], []], [[(0, 0.0), (1, 0.0)], [(2, 0.0), (3, 0.0)]]])
def test_there_is_no_mean_where_seeds_have_no_results_in_common(seeds: list[list[tuple[float, float]]]):
    assert mean_curve(seeds) == []
