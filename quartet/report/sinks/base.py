"""Interface of sinks, and their shared functions."""

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
    """Destination of a run's records. Made once per process; an error ends only that process.

    Its package is imported when it is made, so that a recipe that names it can be read without the package.
    """

    package: ClassVar[str] = ""
    """Package that must be importable, from the extra of the sink's name for shipped sinks; empty for none."""
    serves: ClassVar[bool] = False
    """True if it answers requests only while it runs; other sinks write to persistent places."""

    @abstractmethod
    def __init__(self, settings: Any, recipe: Recipe, run_dir: Path) -> None:
        super().__init__(settings)

    @abstractmethod
    def write(self, news: News) -> None:
        """Send the records since the last call. Records are not repeated, even after a restart."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections and files; all records have been sent on return."""


def check_package(name: str) -> None:
    """Raise `ConfigError` for an unknown sink, and `SetupError` naming the extra if its package is missing."""
    part = cast(type[Sink], find("sink", name))
    package = part.package.partition(".")[0]
    if package and (find_spec(package) is None or find_spec(part.package) is None):
        ours = part.__module__.startswith("quartet.")
        wanted = f"quartet-rl[{name}]" if ours else package
        raise SetupError(
            f"the sink {name!r} needs the package {package!r}, which is not installed",
            f"pip install {wanted!r}, or remove {name!r} from observe.sinks",
        )


def shown_name(name: str, role: str) -> str:
    """Return a metric's name for sinks where roles share one namespace: with the role, unless only one module records
    it."""
    return name if described(name).module == role else f"{name}/{role}"


class StepCounter:
    """Newest train step in the records read so far."""

    def __init__(self) -> None:
        self.step = 0

    def see(self, sums: Sums) -> int:
        """Return the train step of these sums."""
        if rollup := sums.slot.series.get("train/step"):
            self.step = int(rollup.last)
        return self.step
