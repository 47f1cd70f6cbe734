"""Does VADE's sampler find more groups with contrast than uniform sampling, and does that help?"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher


class Main(Strategy):
    """Thompson sampling of families by p (1 - p)^2, and by p (1 - p)."""

    arms: ClassVar = {
        "uniform": [],
        "vade": ["control.sampler=vade"],
        "vade, e = 1": ["control.sampler=vade", "control.sampler.exponent=1"],
    }
    claims = (
        higher("VADE: more success per token", "vade", "uniform"),
        higher("VADE: more success at the end", "vade", "uniform", "end"),
        higher("VADE: a larger share of groups is trained", "vade", "uniform", "trained"),
        higher("the exponent 2: more success per token than 1", "vade", "vade, e = 1"),
    )
