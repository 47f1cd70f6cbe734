"""RollArt's hardware affinity (arXiv 2512.22560): routing by it, against least requests and against one kind of GPU.

Published: the mix of H800 and H20 is 1.30 to 1.68 times as fast as H20 only, and 1.12 to 1.37 times as H800 only.
Devices, tasks and assumptions are those of `rollart.py`; all systems are batch-synchronous with the same number of
engines.
"""

from collections.abc import Mapping

from benchmarks.published import rollart
from benchmarks.published.base import Length, Outcome, Part
from benchmarks.virtual.figures import Figures
from benchmarks.virtual.scenario import Scenario


class Main(Part[rollart.Assumed]):
    """The time per train step of other routing and other devices, in units of that with affinity."""

    assumed = rollart.Assumed()
    length = Length(warm_steps=1, train_steps=1)
    systems = ("affinity", "least_requests", "h20_only", "h800_only")

    def scenario(self, assumed: rollart.Assumed, system: str) -> Scenario:
        mix = int(assumed.h800), int(assumed.h20)
        devices = {"h20_only": (0, sum(mix)), "h800_only": (sum(mix), 0)}.get(system, mix)
        return rollart.scenario(assumed, "batch_synchronous", devices, affinity=system == "affinity")

    def outcomes(self, assumed: rollart.Assumed, figures: Mapping[str, Figures]) -> dict[str, Outcome]:
        others = {
            "least_requests": ("the same mix, least requests", None),
            "h20_only": ("H20 only", (1.30, 1.68)),
            "h800_only": ("H800 only", (1.12, 1.37)),
        }
        period = figures["affinity"].train_step_period_seconds
        return {
            system: Outcome(
                meaning=meaning,
                published=published,
                simulated=figures[system].train_step_period_seconds / period,
            )
            for system, (meaning, published) in others.items()
        }
