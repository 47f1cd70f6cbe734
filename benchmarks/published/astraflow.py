"""AstraFlow (arXiv 2605.15565): two policies trained together on elastic rollout services, against one after the other.

Published: multi-policy training up to 2.7 times as fast as on veRL, which is synchronous. The claim to be tested is at
least 2.0 times, with the same services: some of them leave and join again, and some are in a region far away.

| setting | value | source |
|---|---|---|
| weights of a policy | 28 GB, so a model of 14B | paper |
| weights sent to services | differences of 1.5 GB | paper |
| services | pull rollouts, push trajectories, join and leave | paper |
| trainers | one per policy | paper |

What the sources do not say is in `Assumed`. In every rollout the two policies take turns, as solver and reviewer do, so
that a rollout is a sample for each of them. One after the other, the second policy is frozen while the first one is
trained, and then the other way round; the one trainer has the GPUs of both. Times are those of a train step in the
steady state, so the filling of the run counts for neither way.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from benchmarks.published.base import Length, Outcome, Part, at_least, single, vary
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Away, Engines, Kind, Scenario, Spread
from quartet.forecast.gpus import GPUS
from quartet.forecast.model_size import ModelSize
from quartet.forecast.trainer_cost import Trainer, passes_of
from quartet.forecast.workload import Workload

MODEL = ModelSize(parameters=14e9, kv_bytes_per_token=2 * 40 * 8 * 128 * 2)
POLICIES = ("solver", "reviewer")
DELTA_BYTES = 1.5e9
GROUPS, ROLLOUTS = 8, 8


class Assumed(Struct, frozen=True, kw_only=True):
    """Settings that the sources do not give."""

    trainer_gpus: float = 8
    """H100 of each policy's trainer."""
    sessions: float = 64
    elastic_engines: float = 2
    """Engines of two H100 that leave and join again, with a quarter of the sessions; two others stay."""
    away_seconds: float = 75.0
    """Time for which they are away, in every 300 s."""
    far_engines: float = 2
    """Engines in the region far away."""
    latency_seconds: float = 0.3
    """Time to the region far away and back."""
    far_bytes_per_second: float = 1e9 / 8
    """Bandwidth to the region far away."""
    response_tokens: float = 800.0
    """Mean response of a turn."""
    step_seconds: float = 5.0
    """Mean time of a tool between two turns."""
    trainer_efficiency: float = 0.3
    """Share of the peak in the trainer."""


SYSTEMS: dict[str, tuple[tuple[str, ...], str]] = {
    "together": ((), "rollout_wise"),
    "solver": (("reviewer",), "rollout_wise"),
    "reviewer": (("solver",), "rollout_wise"),
    "solver_synchronous": (("reviewer",), "batch_synchronous"),
    "reviewer_synchronous": (("solver",), "batch_synchronous"),
}
"""Name -> frozen policies, schedule."""


class Main(Part[Assumed]):
    """Both policies together, against one after the other."""

    assumed = Assumed()
    length = Length(warm_steps=1, train_steps=3)
    systems = tuple(SYSTEMS)
    variations = vary(trainer_gpus=(1,), elastic_engines=(0,), far_engines=(0,))

    def scenario(self, assumed: Assumed, system: str) -> Scenario:
        return scenario(assumed, *SYSTEMS[system])

    def outcomes(self, assumed: Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        period = {system: found.train_step_period_seconds for system, found in figures.items()}
        return {
            "one_after_the_other": Outcome(
                meaning="time of one after the other, with the same data manager, in units of together",
                published=at_least(2.0),
                simulated=(period["solver"] + period["reviewer"]) / period["together"],
            ),
            "one_after_the_other_synchronous": Outcome(
                meaning="time of one after the other, batch-synchronous as with veRL, in units of together",
                published=single(2.7),
                simulated=(period["solver_synchronous"] + period["reviewer_synchronous"]) / period["together"],
            ),
            "engine_utilisation": Outcome(
                meaning="share of time in which engines compute, together",
                simulated=figures["together"].engine_utilisation,
            ),
            "trainer_utilisation": Outcome(
                meaning="share of time in which a policy's trainer trains, together",
                simulated=figures["together"].trainer_utilisation,
            ),
        }


def scenario(assumed: Assumed, frozen: tuple[str, ...], schedule: str) -> Scenario:
    """Return the run that trains both policies, or all but the frozen one with the GPUs of both trainers."""
    workload = Workload(
        turns=6,
        prompt_tokens_per_turn=1500,
        response_tokens_per_turn=assumed.response_tokens,
        context_tokens=3000 + 3 * assumed.response_tokens,
        step_seconds=assumed.step_seconds,
        reset_seconds=1.0,
    )
    kind = Kind(workload=workload, spread=Spread(turns=0.3, response=0.7, step=1.0), max_turns=12)
    lag = 2 if schedule == "rollout_wise" else 0
    recipe: dict[str, Any] = {
        "admission": {"schedule": schedule, "max_lag": lag, "on_late": "drop", "group_deadline_seconds": 1e6},
        "control": {"sampler": "uniform", "rollouts_per_group": ROLLOUTS},
        "train": {"groups_per_batch": GROUPS},
        "rollout": {"lease_seconds": 120.0, "max_attempts": 10},
    }
    gpu = GPUS["H100"]
    passes = passes_of(optimizer_epochs=1, activation_checkpointing=True, further=1)
    return Scenario(
        kinds={"dialogue": kind},
        model=MODEL,
        engines=_engines(assumed),
        trainer=Trainer(kind=gpu, trainer_efficiency=assumed.trainer_efficiency, passes=passes),
        trainer_gpus=int(assumed.trainer_gpus) * (1 + len(frozen)),
        sessions=int(assumed.sessions),
        recipe=recipe,
        policies=POLICIES,
        frozen=frozen,
        load_seconds=2.0,
        tick_seconds=5.0,
        loads_at_once=1 if schedule == "rollout_wise" else None,
    )


def _engines(assumed: Assumed) -> list[Engines]:
    gpu = GPUS["H100"]
    stay = Engines(count=2, gpu=gpu, gpus_per_engine=2)
    elastic = Engines(
        count=int(assumed.elastic_engines),
        gpu=gpu,
        gpus_per_engine=2,
        away=Away(period_seconds=300.0, away_seconds=assumed.away_seconds),
        sessions=int(assumed.sessions) // 4,
    )
    far = Engines(
        count=int(assumed.far_engines),
        gpu=gpu,
        gpus_per_engine=2,
        latency_seconds=assumed.latency_seconds,
        load_seconds=2.0 + DELTA_BYTES / assumed.far_bytes_per_second,
    )
    return [group for group in (stay, elastic, far) if group.count]
