"""DART (arXiv 2509.23866): decoupled against non-decoupled training of a desktop agent.

Published: 22.6 -> 43.6 actions/min, use of environments 12.2 -> 67.7 %, of the rollout's GPUs 29.6 -> 46.7 %.

| setting | value | source |
|---|---|---|
| desktops, rollouts per task, tasks per batch | 180, 8, at most 8 | paper, released code |
| model | UI-TARS-1.5-7B (Qwen2.5-VL-7B) | paper |
| GPUs | an engine has 2 H100, the trainer 8 | paper |
| turns | at most 30 | paper |
| context | about 13,500 tokens: a system prompt, 35 texts, 5 pictures | released code |
| trained versions | the newest two, so the lag is at most 1 | released code |
| turns per train step | at most 768 | released code |
| wait after a reset | 60 s | released code |
| dropped groups | equal rewards; of 45 tasks 22 are never solved | released code; paper |
| success of a solvable task | 0.54: the base model's 27.5 % over all tasks | paper |
| new weights | engines restart, two at a time if there are at least four | released code |

What the sources do not say is in `Assumed`. Throughput is what the trainer trains, and an environment is in use while a
rollout has it. If both counted the same actions, the ratios 1.9 and 5.5 would mean by Little's law that an action holds
its environment 5.5 / 1.9 = 2.9 times as long.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from benchmarks.published.base import Length, Ratio, run
from benchmarks.virtual.scenario import Engines, Kind, Scenario, Spread
from quartet.forecast.gpus import GPUS
from quartet.forecast.model_size import ModelSize
from quartet.forecast.trainer_cost import Trainer, passes_of
from quartet.forecast.workload import Workload

CONTEXT_TOKENS = 13_500
SESSIONS, GROUPS, ROLLOUTS = 180, 8, 8
WAIT_AFTER_RESET_SECONDS = 60.0
IMPOSSIBLE_SHARE = 22 / 45
SUCCESS = 0.275 / (1 - IMPOSSIBLE_SHARE)
MODEL = ModelSize(parameters=7.6e9, kv_bytes_per_token=2 * 28 * 4 * 128 * 2)


class Assumed(Struct, frozen=True, kw_only=True):
    """Settings that the sources do not give."""

    engines: float = 4
    """Engines of two GPUs."""
    turns: float = 20.0
    """Mean turns of a rollout."""
    response_tokens: float = 200.0
    """Mean tokens of a response; at most 500 are published."""
    start_seconds: float = 30.0
    """Start of a desktop before the wait of 60 s."""
    step_seconds: float = 5.0
    """An action, 3 s until the screen has settled (OSWorld), and a screenshot."""
    mfu: float = 0.3
    """Model FLOP utilisation of the trainer."""
    load_seconds: float = 120.0
    """Restart of an engine on new weights."""


VARIED = {
    "engines": (2, 8),
    "turns": (10.0, 30.0),
    "response_tokens": (100.0, 400.0),
    "step_seconds": (2.5, 10.0),
    "mfu": (0.15, 0.45),
    "load_seconds": (60.0, 300.0),
}


def ratios(assumed: Assumed, length: Length) -> Mapping[str, Ratio]:
    """Return the three ratios of the decoupled to the coupled system."""
    coupled, decoupled = (run(scenario(assumed, decoupled=way), length) for way in (False, True))
    return {
        "actions_per_minute": Ratio(
            published=43.6 / 22.6,
            simulated=decoupled.trained_actions_per_minute / coupled.trained_actions_per_minute,
        ),
        "environment_utilisation": Ratio(
            published=67.7 / 12.2, simulated=decoupled.environment_utilisation / coupled.environment_utilisation
        ),
        "engine_utilisation": Ratio(
            published=46.7 / 29.6, simulated=decoupled.engine_utilisation / coupled.engine_utilisation
        ),
    }


def scenario(assumed: Assumed, *, decoupled: bool) -> Scenario:
    """Return one of the two systems. The coupled one trains every group and reloads all engines at once."""
    workload = Workload(
        turns=assumed.turns,
        prompt_tokens_per_turn=CONTEXT_TOKENS,  # the window of pictures moves, so that no prefix is reused
        response_tokens_per_turn=assumed.response_tokens,
        context_tokens=CONTEXT_TOKENS + assumed.response_tokens,
        step_seconds=assumed.step_seconds,
        reset_seconds=assumed.start_seconds + WAIT_AFTER_RESET_SECONDS,
    )
    kind = Kind(
        workload=workload,
        spread=Spread(turns=0.4, response=0.5, step=0.4, reset=0.2),
        max_turns=30,
        success=SUCCESS,
        impossible_share=IMPOSSIBLE_SHARE,
    )
    schedule, max_lag = ("rollout_wise", 1) if decoupled else ("batch_synchronous", 0)
    recipe: dict[str, Any] = {
        "admission": {"schedule": schedule, "max_lag": max_lag, "group_deadline_seconds": 1e6},
        "control": {"sampler": "uniform", "rollouts_per_group": ROLLOUTS},
        "train": {"groups_per_batch": GROUPS},
        "filters": [{"name": "mixed_outcome"}] if decoupled else [],
    }
    gpu = GPUS["H100"]
    passes = passes_of(optimizer_epochs=1, activation_checkpointing=True, reference=True)
    return Scenario(
        kinds={"desktop": kind},
        model=MODEL,
        engines=[Engines(count=int(assumed.engines), gpu=gpu, gpus_per_engine=2)],
        trainer=Trainer(kind=gpu, mfu=assumed.mfu, passes=passes),
        trainer_gpus=8,
        sessions=SESSIONS,
        recipe=recipe,
        load_seconds=assumed.load_seconds,
        loads_at_once=(2 if assumed.engines >= 4 else 1) if decoupled else None,
        max_trained_turns=768,
    )
