"""Arrays of Gymnasium's observations as text."""

import json

import numpy
import pytest

from quartet.env.gym.text import values


@pytest.mark.parametrize("shape", [(2000,), (40, 50)])
def test_all_numbers_of_a_large_observation_are_shown_one_row_per_line(shape):
    seen = numpy.arange(2000).reshape(shape)
    text = values(None, {"grid": seen})
    assert json.loads(text.removeprefix("grid: ")) == seen.tolist()
    assert len(text.splitlines()) == (1 if len(shape) == 1 else shape[0])
