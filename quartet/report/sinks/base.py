"""The interface of sinks, and what sinks share."""

from abc import abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, cast

from quartet.config import Recipe
from quartet.errors import SetupError
from quartet.part import Part
from quartet.registry import find
from quartet.report.follow import News, Sums
from quartet.telemetry.metrics import described


class Sink(Part):
    """Shows a run somewhere. Made once per process; whatever it raises ends that process, and only that.

    The package that it needs is imported when it is made, so that a recipe that names it can be read without.
    """

    package: ClassVar[str] = ""
    """What must be importable, from the extra of the sink's name where it ships; empty for nothing."""
    serves: ClassVar[bool] = False
    """Whether it answers requests only while it runs; others write what they show to where it stays."""

    @abstractmethod
    def __init__(self, knobs: Any, recipe: Recipe, run_dir: Path) -> None:
        super().__init__(knobs)

    @abstractmethod
    def write(self, news: News) -> None:
        """Show what came since the last call. News that were shown are not given again, also after a restart."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections and files; everything is shown when this returns."""


def check_package(name: str) -> None:
    """Raise `ConfigError` for an unknown sink, `SetupError` that names the extra whose package is missing."""
    part = cast(type[Sink], find("sink", name))
    package = part.package.partition(".")[0]
    if package and (find_spec(package) is None or find_spec(part.package) is None):
        ours = part.__module__.startswith("quartet.")
        wanted = f"quartet-rl[{name}]" if ours else package
        raise SetupError(
            f"the sink {name!r} needs the package {package!r}, which is not installed",
            f"pip install {wanted!r}, or leave {name!r} out of observe.sinks",
        )


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
