"""The sink protocol, and what sinks share."""

from pathlib import Path
from typing import Protocol

from quartet.config import Recipe
from quartet.observe.follow import News, Sums
from quartet.observe.metrics import described


class Sink(Protocol):
    """Shows a run somewhere. Made once per process; whatever it raises ends that process, and only that."""

    def __init__(self, recipe: Recipe, run_dir: Path) -> None: ...

    def write(self, news: News) -> None:
        """Show what came since the last call. News that were shown are not given again, also after a restart."""
        ...

    def close(self) -> None:
        """Let go; everything is shown when this returns."""
        ...


def shown_name(name: str, role: str) -> str:
    """A metric's name where roles share one space: with the role unless only one module records it, once."""
    return name if described(name).module == role else f"{name}/{role}"


class StepCounter:
    """The newest train step, read off the news in order."""

    def __init__(self) -> None:
        self.step = 0

    def see(self, sums: Sums) -> int:
        """The step to show these sums at."""
        if rollup := sums.slot.series.get("train/step"):
            self.step = int(rollup.last)
        return self.step
