"""A cluster that no test machine has: 1,000 engines and 10,000 environments, with the workload of `dart.py`.

The batch grows with the cluster, so that admission lets every environment work at a lag of at most 2.
"""

import math
import time
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from benchmarks.published.dart import Assumed
from benchmarks.published.dart import scenario as dart_scenario
from benchmarks.virtual.figures import simulate
from benchmarks.virtual.scenario import Engines, Scenario
from quartet.forecast.gpus import GPUS

ROLLOUTS_PER_GROUP, MAX_LAG = 8, 2
SESSIONS_PER_TRAINER_GPU = 5


def scenario(engines: int, sessions: int) -> Scenario:
    """Return the cluster."""
    small = dart_scenario(Assumed(load_seconds=10.0), decoupled=True)
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


def measure(engines: int, sessions: int, train_steps: int, folder: Path | None) -> dict[str, Any]:
    """Return the figures of the cluster, and the wall time of the simulation."""
    began = time.perf_counter()
    found = simulate(scenario(engines, sessions), warm_steps=1, train_steps=train_steps, folder=folder)
    return asdict(found) | {"engines": engines, "sessions": sessions, "wall_seconds": time.perf_counter() - began}
