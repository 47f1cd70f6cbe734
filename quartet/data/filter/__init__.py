"""Filters: what a closed group is worth. Each is a one-class file behind a name."""

from quartet.data.filter.base import Filter
from quartet.data.filter.mixed_outcome import MixedOutcome

FILTERS: dict[str, type[Filter]] = {"mixed_outcome": MixedOutcome}
