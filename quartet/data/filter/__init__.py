"""Filters: what a closed group is worth. Each is a one-class file behind a name; several are applied in order."""

from quartet.data.filter.accuracy_band import AccuracyBand
from quartet.data.filter.base import Filter
from quartet.data.filter.broken import Broken
from quartet.data.filter.mixed_outcome import MixedOutcome
from quartet.data.filter.overlong import Overlong
from quartet.data.filter.short_failures import ShortFailures

FILTERS: dict[str, type[Filter]] = {
    "broken": Broken,
    "overlong": Overlong,
    "short_failures": ShortFailures,
    "accuracy_band": AccuracyBand,
    "mixed_outcome": MixedOutcome,
}
