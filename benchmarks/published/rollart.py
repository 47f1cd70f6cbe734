"""RollArt (arXiv 2512.22560): disaggregated and asynchronous against synchronous and one-step-off training.

Published, at a lag bound of 1: train steps 2.05 times as fast as with veRL+ (synchronous) and 1.35 times as fast as
with StreamRL (disaggregated, one step off). Parts of it: hardware affinity 1.30 to 1.68 against H20 only and 1.12 to
1.37 against H800 only; asynchronous loading of weights 1.10 to 1.16; redundant rollouts up to 1.62.

| setting | value | source |
|---|---|---|
| GPUs | H800 and H20 for rollouts, H800 for training | paper |
| tasks | prompts dominate in one kind, responses in the other | paper |
| lag bound | 1 | paper |
| models | dense, 8B to 32B | paper |
| new weights | engines fetch them on their own; here a quarter of them at a time | paper; assumed |

What the sources do not say is in `Assumed`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from benchmarks.published.base import Length, Outcome, Part, single, vary
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Engines, Kind, Scenario, Spread
from quartet.forecast.gpus import GPUS
from quartet.forecast.model_size import ModelSize
from quartet.forecast.trainer_cost import Trainer, passes_of
from quartet.forecast.workload import Workload

MODEL = ModelSize(parameters=8.2e9, kv_bytes_per_token=2 * 36 * 8 * 128 * 2)
"""Qwen3-8B."""
Mix = tuple[int, int]
"""Engines of one GPU: H800, H20."""


class Assumed(Struct, frozen=True, kw_only=True):
    """Settings that the sources do not give."""

    h800: float = 16
    """Engines of one H800."""
    h20: float = 16
    """Engines of one H20."""
    trainer_gpus: float = 32
    """H800 of the trainer."""
    groups_per_batch: float = 32
    """Groups of 8 rollouts per train step."""
    turns: float = 30.0
    """Mean turns of the kind of task with long prompts; the other has one."""
    response_tokens: float = 6000.0
    """Mean response of the kind with long responses; the other has 150 per turn."""
    step_seconds: float = 3.0
    """Mean step of the kind with many turns."""
    variation: float = 1.0
    """Coefficient of variation of steps, resets and responses."""
    trainer_efficiency: float = 0.3
    """Share of the peak in the trainer."""
    load_seconds: float = 20.0
    """Load of new weights."""


class Main(Part[Assumed]):
    """The time per train step of the two other systems, in units of RollArt's."""

    assumed = Assumed()
    length = Length(warm_steps=4, train_steps=8)
    systems = ("rollart", "synchronous", "one_step_off")
    variations = vary(
        trainer_gpus=(16, 64),
        groups_per_batch=(16, 64),
        turns=(15.0, 45.0),
        response_tokens=(3000.0, 12000.0),
        step_seconds=(1.0, 10.0),
        variation=(0.5, 2.0),
        load_seconds=(5.0, 60.0),
    )

    def scenario(self, assumed: Assumed, system: str) -> Scenario:
        mix = int(assumed.h800), int(assumed.h20)
        if system == "rollart":
            return scenario(assumed, "rollout_wise", mix, affinity=True)
        schedule = {"synchronous": "batch_synchronous", "one_step_off": "one_step_off"}[system]
        return scenario(assumed, schedule, mix, affinity=False)

    def outcomes(self, assumed: Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        period = {system: found.train_step_period_seconds for system, found in figures.items()}
        return {
            "against_synchronous": Outcome(
                meaning="synchronous (veRL+)",
                published=single(2.05),
                simulated=period["synchronous"] / period["rollart"],
            ),
            "against_one_step_off": Outcome(
                meaning="one step off (StreamRL)",
                published=single(1.35),
                simulated=period["one_step_off"] / period["rollart"],
            ),
        }


def scenario(assumed: Assumed, schedule: str, mix: Mix, *, affinity: bool) -> Scenario:
    """Return one system. In all of them rollouts and training have separate GPUs."""
    lag = 0 if schedule == "batch_synchronous" else 1
    recipe: dict[str, Any] = {
        "admission": {"schedule": schedule, "max_lag": lag, "group_deadline_seconds": 1e6},
        "control": {"sampler": "uniform", "rollouts_per_group": 8},
        "train": {"groups_per_batch": int(assumed.groups_per_batch)},
    }
    engines = [
        Engines(count=count, gpu=GPUS[name], gpus_per_engine=1)
        for name, count in zip(("H800", "H20"), mix, strict=True)
        if count
    ]
    passes = passes_of(optimizer_epochs=1, activation_checkpointing=True, further=1)
    return Scenario(
        kinds=_kinds(assumed),
        model=MODEL,
        engines=engines,
        trainer=Trainer(kind=GPUS["H800"], trainer_efficiency=assumed.trainer_efficiency, passes=passes),
        trainer_gpus=int(assumed.trainer_gpus),
        sessions=2 * 8 * int(assumed.groups_per_batch),
        recipe=recipe,
        affinity=affinity,
        load_seconds=assumed.load_seconds,
        tick_seconds=5.0,
        loads_at_once=max(sum(mix) // 4, 1) if schedule == "rollout_wise" else None,
    )


def _kinds(assumed: Assumed) -> dict[str, Kind]:
    spread = Spread(turns=0.5, response=assumed.variation, step=assumed.variation, reset=assumed.variation)
    agentic = Workload(
        turns=assumed.turns,
        prompt_tokens_per_turn=2000,
        response_tokens_per_turn=150,
        context_tokens=16_000,
        step_seconds=assumed.step_seconds,
        reset_seconds=10.0,
    )
    reasoning = Workload(
        turns=1,
        prompt_tokens_per_turn=500,
        response_tokens_per_turn=assumed.response_tokens,
        context_tokens=assumed.response_tokens / 2,
        step_seconds=0.1,
        reset_seconds=0.1,
    )
    return {
        "agentic": Kind(workload=agentic, spread=spread, max_turns=2 * int(assumed.turns)),
        "reasoning": Kind(workload=reasoning, spread=spread, max_turns=2),
    }
