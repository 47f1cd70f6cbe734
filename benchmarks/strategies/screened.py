"""Does a small first round save tokens, if only groups with different first rewards are completed?"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher


class Main(Strategy):
    """Eight rollouts for all groups, against the rest of eight only for groups whose first rewards differ."""

    arms: ClassVar = {
        "fixed": [],
        "first 4": ["control.allocator=screened"],
        "first 3": ["control.allocator=screened", "control.allocator.first_rollouts=3"],
    }
    claims = (
        higher("4 first: more success per token", "first 4", "fixed"),
        higher("4 first: more groups are trained", "first 4", "fixed", "trained_groups"),
        higher("3 first: more success per token", "first 3", "fixed"),
    )
