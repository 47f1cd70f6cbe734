"""Is the best choice of strategies on `locks` better than plain GRPO and than DART's preset?

The arm `best` is the candidate of `best_locks_tuning` that had the highest success at the first try, mean over the run,
on the tuning seeds 0 to 4. Results of these seeds are never published.
"""

import math
from typing import ClassVar

from msgspec.structs import replace

from benchmarks.learning_experiments.base import Claim, Figure, Measured, Settings
from benchmarks.locks.variants import VARIANTS
from benchmarks.strategies.base import Strategy, higher
from benchmarks.strategies.best_locks_tuning import CANDIDATES

CHOSEN = "first 3, short, imitation"
"""Name of the candidate."""
OVER_GRPO, OVER_DART = 1.5, 1.2
"""Bounds of the claims about ratios of success per token."""
LOWEST_SUCCESS = 1e-3
"""Success, mean over the run, below which a run counts as having this one, so that its logarithm is finite."""


class Main(Strategy):
    """Plain GRPO, the chosen candidate, and the method of the recipe `dart` without demonstrations: it has one epoch
    and no entropy bonus."""

    arms: ClassVar = {"grpo": [], "dart": VARIANTS["dart"].options, "best": CANDIDATES[CHOSEN]}
    figures: ClassVar = dict(Strategy.figures) | {
        "log_area": Figure("natural logarithm of success at the first try, mean over the run", 2)
    }
    claims = (
        higher("best: more success per token than GRPO", "best", "grpo"),
        higher("best: more success per token than DART's preset", "best", "dart"),
        Claim(
            text=f"best: {OVER_GRPO} x the success per token of GRPO, in the geometric mean",
            arm="best",
            against="grpo",
            figure="log_area",
            above=math.log(OVER_GRPO),
        ),
        Claim(
            text=f"best: {OVER_DART} x the success per token of DART's preset, in the geometric mean",
            arm="best",
            against="dart",
            figure="log_area",
            above=math.log(OVER_DART),
        ),
    )

    def run(self, settings: Settings, seed: int) -> Measured:
        measured = super().run(settings, seed)
        logarithm = math.log(max(measured.figures["area"], LOWEST_SUCCESS))
        return replace(measured, figures=measured.figures | {"log_area": logarithm})
