"""RollArt's redundant rollouts (arXiv 2512.22560) where environments are slow or hang at random.

Published: rollouts up to 1.62 times as fast. The paper states neither the latencies nor the number of extra rollouts
of this figure, so no ratio is compared: the result is the gain for each number of extra rollouts, and its price.

The devices and tasks are those of `rollart.py`; all that is assumed here is in `Assumed`.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.published import rollart
from benchmarks.published.base import Length, run
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Scenario

EXTRA_ROLLOUTS = (0, 1, 2, 4)
SCHEDULES = ("batch_synchronous", "rollout_wise")


class Assumed(Struct, frozen=True, kw_only=True):
    """Troubles of environments; the share is that of attempts with many turns."""

    slow_share: float = 0.05
    slow_factor: float = 5.0
    hang_share: float = 0.01
    hang_seconds: float = 600.0
    """Time until the failure of an environment that hangs is noticed."""


def measure(assumed: Assumed, length: Length) -> dict[str, Any]:
    """Return gain and price of each number of extra rollouts, by schedule, and the same without troubles."""
    calm = Assumed(slow_share=0.0, hang_share=0.0)
    return {
        f"{schedule}, {name}": _gains(troubles, schedule, length)
        for schedule in SCHEDULES
        for name, troubles in (("troubled", assumed), ("calm", calm))
    }


def _gains(assumed: Assumed, schedule: str, length: Length) -> dict[str, dict[str, float]]:
    found = {extra: run(scenario(assumed, schedule, extra), length) for extra in EXTRA_ROLLOUTS}
    plain = found[0]
    return {
        f"{extra} extra": {
            "train_step_seconds": round(one.train_step_period_seconds, 1),
            "gain": round(plain.train_step_period_seconds / one.train_step_period_seconds, 3),
            "turns_per_trained_turn": round(turns_per_trained_turn(one), 3),
        }
        for extra, one in found.items()
    }


def turns_per_trained_turn(found: Figures) -> float:
    """Return the number of turns, of cancelled and failed rollouts too, for each turn that is trained."""
    return found.actions_per_minute / found.trained_actions_per_minute


def scenario(assumed: Assumed, schedule: str, extra: int) -> Scenario:
    """Return RollArt's system with troubled environments and `extra` rollouts per group."""
    base = rollart.scenario(rollart.Assumed(), schedule, (16, 16), affinity=True)
    agentic = replace(
        base.kinds["agentic"],
        slow_share=assumed.slow_share,
        slow_factor=assumed.slow_factor,
        hang_share=assumed.hang_share,
        hang_seconds=assumed.hang_seconds,
    )
    straggler = {"straggler": {"name": "redundancy", "extra_rollouts": extra}} if extra else {}
    return replace(base, kinds=base.kinds | {"agentic": agentic}, recipe=base.recipe | straggler, tick_seconds=5.0)
