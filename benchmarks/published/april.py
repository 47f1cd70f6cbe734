"""APRIL (arXiv 2509.18521): batch-synchronous training whose long responses are recycled, against the same without.

Published: the rollout's throughput, in tokens per GPU and second, is 1.225 times that of the same system on average,
and at most 1.44 times; generation takes more than 90 % of the time.

| setting | value | source |
|---|---|---|
| batch | 32 groups of 8 responses; APRIL starts 64 groups | released scripts |
| response | at most 16,384 tokens, one turn | released scripts |
| model | Qwen3-4B | released scripts |
| GPUs | 8, which generate and train in turn; an engine has 2 | released scripts |
| recycled responses | continue first, at any lag, with a new prefill | released code |

The paper used MI300X and H100; here they are H100. What the sources do not say is in `Assumed`. The throughput is that
of the time in which no train step and no load of weights runs.
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

MODEL = ModelSize(parameters=4.0e9, kv_bytes_per_token=2 * 36 * 8 * 128 * 2)
"""Qwen3-4B."""
GROUPS, ROLLOUTS, OVER_PROVISION = 32, 8, 2.0
MAX_RESPONSE_TOKENS = 16_384
NO_BOUND = 1000
"""Lag that no recycled token reaches."""


class Assumed(Struct, frozen=True, kw_only=True):
    """Settings that the sources do not give."""

    response_tokens: float = 5000.0
    """Mean response before the limit."""
    variation: float = 1.0
    """Coefficient of variation of a response, log-normal before the limit."""
    trainer_efficiency: float = 0.4
    """Share of the peak in the trainer."""
    load_seconds: float = 2.0
    """Load of new weights on the same GPUs."""


class Main(Part[Assumed]):
    """APRIL against the same system without it."""

    assumed = Assumed()
    length = Length(warm_steps=1, train_steps=3)
    systems = ("plain", "april")
    variations = vary(response_tokens=(2500.0, 8000.0), variation=(0.5, 1.5))

    def scenario(self, assumed: Assumed, system: str) -> Scenario:
        return scenario(assumed, recycles=system == "april")

    def outcomes(self, assumed: Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        plain, april = figures["plain"], figures["april"]
        return {
            "rollout_tokens_per_second": Outcome(
                meaning="tokens per second of the rollout, in units of those without APRIL",
                published=single(1.225),
                simulated=rollout_throughput(april, assumed) / rollout_throughput(plain, assumed),
            ),
            "train_steps_per_second": Outcome(
                meaning="train steps per second, in units of those without APRIL",
                simulated=plain.train_step_period_seconds / april.train_step_period_seconds,
            ),
            "plain_train_share": Outcome(
                meaning="share of time of train steps, without APRIL",
                published=(0.0, 0.1),
                simulated=plain.trainer_utilisation,
            ),
        }


def rollout_throughput(found: Figures, assumed: Assumed) -> float:
    """Return the tokens per second of the time in which engines may generate."""
    busy_seconds = found.train_step_period_seconds * found.trainer_utilisation + assumed.load_seconds
    share = 1 - busy_seconds / found.train_step_period_seconds
    return found.generated_tokens_per_second / share


def scenario(assumed: Assumed, *, recycles: bool) -> Scenario:
    """Return the system with APRIL (`recycles`) or without it."""
    workload = Workload(
        turns=1,
        prompt_tokens_per_turn=200,
        response_tokens_per_turn=assumed.response_tokens,
        context_tokens=200 + assumed.response_tokens / 2,
        step_seconds=0.1,
        reset_seconds=0.1,
    )
    kind = Kind(
        workload=workload,
        spread=Spread(response=assumed.variation),
        max_turns=1,
        max_response_tokens=MAX_RESPONSE_TOKENS,
    )
    lag = NO_BOUND if recycles else 0
    recipe: dict[str, Any] = {
        "admission": {"schedule": "batch_synchronous", "max_lag": lag, "group_deadline_seconds": 1e6},
        "control": {"sampler": "uniform", "rollouts_per_group": ROLLOUTS},
        "train": {"groups_per_batch": GROUPS},
    }
    if recycles:
        recipe["straggler"] = {"name": "april", "over_provision": OVER_PROVISION}
    gpu = GPUS["H100"]
    passes = passes_of(optimizer_epochs=1, activation_checkpointing=True, further=1)
    return Scenario(
        kinds={"reasoning": kind},
        model=MODEL,
        engines=[Engines(count=4, gpu=gpu, gpus_per_engine=2)],
        trainer=Trainer(kind=gpu, trainer_efficiency=assumed.trainer_efficiency, passes=passes),
        trainer_gpus=8,
        sessions=int(OVER_PROVISION * GROUPS * ROLLOUTS),
        recipe=recipe,
        load_seconds=assumed.load_seconds,
        tick_seconds=5.0,
        loads_at_once=None,
    )
