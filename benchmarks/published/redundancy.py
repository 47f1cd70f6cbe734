"""RollArt's redundant rollouts (arXiv 2512.22560) where environments are slow or hang at random.

Published: rollouts up to 1.62 times as fast. The paper states neither the latencies nor the number of extra rollouts
of this figure, so no ratio is compared: the result is the gain for each number of extra rollouts, and its price.

The devices and tasks are those of `rollart.py`; all that is assumed here is in `Assumed`.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.published import rollart
from benchmarks.published.base import Length, Outcome, Part
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Scenario

EXTRA_ROLLOUTS = {"plain": 0, "one_extra": 1, "two_extra": 2, "four_extra": 4}
"""System -> extra rollouts per group."""
CALM: dict[str, Any] = {"slow_share": 0.0, "hang_share": 0.0}


class Assumed(Struct, frozen=True, kw_only=True):
    """Troubles of environments; the share is that of attempts with many turns."""

    schedule: str = "batch_synchronous"
    slow_share: float = 0.05
    slow_factor: float = 5.0
    hang_share: float = 0.01
    hang_seconds: float = 600.0
    """Time until the failure of an environment that hangs is noticed."""


class Main(Part[Assumed]):
    """Gain and price of each number of extra rollouts, by schedule, and the same without troubles."""

    assumed = Assumed()
    length = Length(warm_steps=1, train_steps=1)
    systems = tuple(EXTRA_ROLLOUTS)
    variations = (CALM, {"schedule": "rollout_wise"}, {"schedule": "rollout_wise"} | CALM)

    def scenario(self, assumed: Assumed, system: str) -> Scenario:
        return scenario(assumed, EXTRA_ROLLOUTS[system])

    def outcomes(self, assumed: Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        seconds = figures["plain"].train_step_period_seconds
        found = {"train_step_seconds": Outcome(meaning="s per train step, 0 extra", simulated=seconds)}
        for system, extra in EXTRA_ROLLOUTS.items():
            gain = seconds / figures[system].train_step_period_seconds
            turns = turns_per_trained_turn(figures[system])
            if extra:
                found[f"gain_{extra}"] = Outcome(meaning=f"gain, {extra} extra", simulated=gain)
            found[f"turns_{extra}"] = Outcome(meaning=f"turns per trained turn, {extra} extra", simulated=turns)
        return found


def turns_per_trained_turn(found: Figures) -> float:
    """Return the number of turns, of cancelled and failed rollouts too, for each turn that is trained."""
    return found.actions_per_minute / found.trained_actions_per_minute


def scenario(assumed: Assumed, extra: int) -> Scenario:
    """Return RollArt's system with troubled environments and `extra` rollouts per group."""
    base = rollart.scenario(rollart.Assumed(), assumed.schedule, (16, 16), affinity=True)
    agentic = replace(
        base.kinds["agentic"],
        slow_share=assumed.slow_share,
        slow_factor=assumed.slow_factor,
        hang_share=assumed.hang_share,
        hang_seconds=assumed.hang_seconds,
    )
    straggler = {"straggler": {"name": "redundancy", "extra_rollouts": extra}} if extra else {}
    return replace(base, kinds=base.kinds | {"agentic": agentic}, recipe=base.recipe | straggler)
