"""Clusters that no test machine has: up to 1,000 engines and 10,000 environments, with the workload of `dart.py`.

The batch grows with the cluster, so that admission lets every environment work at a lag of at most 2.
"""

import math
from collections.abc import Mapping

from msgspec.structs import replace

from benchmarks.published import dart
from benchmarks.published.base import Length, Outcome, Part
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Engines, Scenario
from quartet.forecast.gpus import GPUS

ROLLOUTS_PER_GROUP, MAX_LAG = 8, 2
SESSIONS_PER_TRAINER_GPU = 5
SIZES = {"1000_engines": (1000, 10_000), "100_engines": (100, 1000), "10_engines": (10, 100)}
"""System -> engines of one GPU, environments."""


class Main(Part[dart.Assumed]):
    """Use of the devices, and the data manager's work per tick, by the size of the cluster."""

    assumed = dart.Assumed(load_seconds=10.0)
    systems = tuple(SIZES)
    length = Length(warm_steps=1, train_steps=1)
    headlines = ("engine_utilisation_1000_engines",)

    def scenario(self, assumed: dart.Assumed, system: str) -> Scenario:
        return scenario(assumed, *SIZES[system])

    def outcomes(self, assumed: dart.Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        shown = {
            "engine_utilisation": "share of time in which engines compute",
            "environment_utilisation": "share of time in which environments are in use",
            "tick_milliseconds": "processor time of a tick of the data manager, ms",
        }
        return {
            f"{figure}_{system}": Outcome(
                meaning=f"{SIZES[system][0]:,} engines: {meaning}", simulated=getattr(figures[system], figure)
            )
            for system in SIZES
            for figure, meaning in shown.items()
        }


def scenario(assumed: dart.Assumed, engines: int, sessions: int) -> Scenario:
    """Return the cluster."""
    small = dart.scenario(assumed, decoupled=True)
    groups = math.ceil(1.5 * sessions / ((MAX_LAG + 1) * ROLLOUTS_PER_GROUP))
    admission = small.recipe["admission"] | {"max_lag": MAX_LAG}
    return replace(
        small,
        engines=[Engines(count=engines, gpu=GPUS["H100"], gpus_per_engine=1)],
        trainer_gpus=max(sessions // SESSIONS_PER_TRAINER_GPU, 1),
        sessions=sessions,
        recipe=small.recipe | {"admission": admission, "train": {"groups_per_batch": groups}},
        loads_at_once=max(engines // 20, 1),
        max_trained_turns=None,
    )
