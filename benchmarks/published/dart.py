"""DART (arXiv 2509.23866): decoupled against non-decoupled training of a desktop agent.

Published: 22.6 -> 43.6 actions/min, use of environments 12.2 -> 67.7 %, of the rollout's GPUs 29.6 -> 46.7 %.

| setting | value | source |
|---|---|---|
| desktops, rollouts per task, tasks per batch | 180, 8, at most 8 | paper, released code |
| model | UI-TARS-1.5-7B (Qwen2.5-VL-7B) | paper |
| GPUs | an engine has 2 H100, the trainer 8 | paper |
| turns | at most 30 | paper |
| context | about 13,500 tokens: a system prompt, 35 texts, 5 pictures | released code |
| start of a rollout | whenever a desktop is free, at any lag | released code |
| trained rollouts | their last call is by one of the newest two versions; the others are dropped | released code |
| turns per train step | at most 768 | released code |
| wait after a reset | 60 s | released code |
| dropped groups | equal rewards, in the decoupled system; of 45 tasks 22 are never solved | released code; paper |
| success of a solvable task | 0.54: the base model's 27.5 % over all tasks | paper |
| new weights | engines restart, two at a time if there are at least four | released code |

What the sources do not say is in `Assumed`. Throughput is what the trainer trains, and an environment is in use while a
rollout has it. The step's duration and the trainer's efficiency follow from two published figures of the *coupled*
system: 22.6 actions/min with at most 768 turns per train step are the period of a train step (2,039 s), and 12.2 % of
180 desktops in use during it are, by Little's law, 700 s per rollout. No figure of the decoupled system is used, so its
ratios are predictions.

It is not published how use was measured. So the ratio for environments is also simulated without desktops that start,
and the ratio for engines for two figures: the share of time in which a GPU runs a kernel, which is what NVML reports as
utilisation, and that of its matrix products. Nor is it published whether the coupled system drops groups of equal
rewards and generates others instead (`coupled_drops`).
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.published.base import Length, Outcome, Part, Simulate, single, vary
from benchmarks.virtual.figures import Figures
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
COUPLED_ACTIONS_PER_MINUTE, COUPLED_ENVIRONMENT_UTILISATION, COUPLED_ENGINE_UTILISATION = 22.6, 0.122, 0.296
RATIOS = {
    "trained_actions_per_minute": ("trained actions", 43.6 / 22.6),
    "environment_utilisation": ("environments in use", 67.7 / 12.2),
    "environment_started": ("environments in use, without those that start", 67.7 / 12.2),
    "engine_utilisation": ("engines that run a kernel", 46.7 / 29.6),
    "engine_compute": ("engines, by the time of their matrix products", 46.7 / 29.6),
}
"""Figure -> meaning and published value of the ratio of the decoupled to the coupled system."""
CALIBRATION_ROUNDS, CALIBRATION_TOLERANCE = 6, 0.02
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
    """An action, 3 s until the screen has settled (OSWorld), and a screenshot; before `calibrated`."""
    trainer_efficiency: float = 0.3
    """Share of the peak in the trainer; before `calibrated`."""
    load_seconds: float = 120.0
    """Restart of an engine on new weights."""
    admitted_lag: float = 1000
    """Lag up to which the decoupled system starts rollouts; 1000 is no bound, as in the released code."""
    coupled_drops: bool = False
    """The coupled system drops groups of equal rewards, and generates until it has a whole batch of others."""


class Main(Part[Assumed]):
    """The decoupled against the coupled system, after calibration on the coupled one."""

    assumed = Assumed()
    length = Length(warm_steps=1, train_steps=4)
    systems = ("coupled", "decoupled")
    variations = vary(admitted_lag=(2,), coupled_drops=(True,), engines=(1, 2), turns=(10.0,), load_seconds=(300.0,))

    def scenario(self, assumed: Assumed, system: str) -> Scenario:
        return scenario(assumed, decoupled=system == "decoupled")

    def prepared(self, assumed: Assumed, simulate: Simulate[Assumed]) -> Assumed:
        """Return the assumptions with the step's duration and the trainer's efficiency with which the coupled system
        has its published throughput and use of environments."""
        for _ in range(CALIBRATION_ROUNDS):
            found = simulate(assumed, "coupled")
            if is_calibrated(found):
                break
            assumed = calibrated(assumed, found)
        return assumed

    def outcomes(self, assumed: Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        coupled, decoupled = figures["coupled"], figures["decoupled"]
        ratios = {
            name: Outcome(
                meaning=meaning,
                published=single(published),
                simulated=getattr(decoupled, name) / getattr(coupled, name),
            )
            for name, (meaning, published) in RATIOS.items()
        }
        return ratios | {
            "coupled_actions_per_minute": Outcome(
                meaning="coupled: actions/min (calibrated)",
                published=single(COUPLED_ACTIONS_PER_MINUTE),
                simulated=coupled.trained_actions_per_minute,
            ),
            "coupled_environment_utilisation": Outcome(
                meaning="coupled: share of environments in use (calibrated)",
                published=single(COUPLED_ENVIRONMENT_UTILISATION),
                simulated=coupled.environment_utilisation,
            ),
            "coupled_engine_utilisation": Outcome(
                meaning="coupled: share of time in which engines run a kernel",
                published=single(COUPLED_ENGINE_UTILISATION),
                simulated=coupled.engine_utilisation,
            ),
            "step_seconds": Outcome(meaning="step, s (calibrated)", simulated=assumed.step_seconds),
            "trainer_efficiency": Outcome(
                meaning="trainer efficiency (calibrated)", simulated=assumed.trainer_efficiency
            ),
        }


def is_calibrated(coupled: Figures) -> bool:
    """Return whether the coupled system has its published throughput and use of environments."""
    ratios = (
        coupled.trained_actions_per_minute / COUPLED_ACTIONS_PER_MINUTE,
        coupled.environment_utilisation / COUPLED_ENVIRONMENT_UTILISATION,
    )
    return all(abs(ratio - 1) <= CALIBRATION_TOLERANCE for ratio in ratios)


def calibrated(assumed: Assumed, found: Figures) -> Assumed:
    """Return the step's duration and the trainer's efficiency that give the published figures, to first order from the
    figures of the coupled system with `assumed`."""
    period = found.train_step_period_seconds
    wanted_period = period * found.trained_actions_per_minute / COUPLED_ACTIONS_PER_MINUTE
    rollouts = found.rollouts_per_hour * period / 3600
    held = found.environment_utilisation * SESSIONS * period / rollouts
    wanted_held = COUPLED_ENVIRONMENT_UTILISATION * SESSIONS * wanted_period / rollouts
    train_seconds = found.trainer_utilisation * period
    return replace(
        assumed,
        step_seconds=max(assumed.step_seconds + (wanted_held - held) / assumed.turns, 0.1),
        trainer_efficiency=assumed.trainer_efficiency
        * train_seconds
        / max(train_seconds + wanted_period - period, 1.0),
    )


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
    schedule, max_lag = ("rollout_wise", int(assumed.admitted_lag)) if decoupled else ("batch_synchronous", 0)
    recipe: dict[str, Any] = {
        "admission": {"schedule": schedule, "max_lag": max_lag, "on_late": "drop", "group_deadline_seconds": 1e6},
        "control": {"sampler": "uniform", "rollouts_per_group": ROLLOUTS},
        "train": {"groups_per_batch": GROUPS},
        "filters": [{"name": "mixed_outcome"}] if decoupled or assumed.coupled_drops else [],
    }
    gpu = GPUS["H100"]
    passes = passes_of(optimizer_epochs=1, activation_checkpointing=True, further=2)
    return Scenario(
        kinds={"desktop": kind},
        model=MODEL,
        engines=[Engines(count=int(assumed.engines), gpu=gpu, gpus_per_engine=2)],
        trainer=Trainer(kind=gpu, trainer_efficiency=assumed.trainer_efficiency, passes=passes),
        trainer_gpus=8,
        sessions=SESSIONS,
        recipe=recipe,
        load_seconds=assumed.load_seconds,
        loads_at_once=(2 if assumed.engines >= 4 else 1) if decoupled else None,
        trained_lag=1 if decoupled else 0,
        last_call_only=True,
        max_trained_turns=768,
        tick_seconds=20.0,
    )
