"""Shares of members that are rounded up: a product that is a whole number adds no member for its rounding error."""

from fractions import Fraction
from math import ceil

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quartet.manager.straggler.april import April
from quartet.manager.straggler.early_stop import EarlyStop
from quartet.rounding import rounded_up
from quartet.train.pruning import _best_and_worst
from quartet.train.recomposition import priority
from tests.ledger.samples import recipe


@given(hundredths=st.integers(0, 200), size=st.integers(0, 1000))
def test_rounding_up_is_that_of_exact_arithmetic(hundredths: int, size: int):
    assert rounded_up(hundredths / 100 * size) == ceil(Fraction(hundredths, 100) * size)


def test_seven_of_twenty_five_are_28_percent_everywhere():
    """0.28 * 25 is 7.000000000000001 in floating point, and 1.1 * 50 is 55.00000000000001."""
    failures = np.concatenate([np.ones(26), np.zeros(25)])
    assert priority(failures, np.arange(51.0), 0.28)[26:].sum() == 7
    assert _best_and_worst(np.arange(25.0), best=0.28, worst=0.0).sum() == 7
    assert EarlyStop(EarlyStop.Settings(min_share=0.28), recipe()).quorum(25).enough == 7 + 2
    assert April(April.Settings(over_provision=1.1), recipe()).groups_ahead(50) == 55
