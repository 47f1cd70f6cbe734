"""Interface of sinks, and their shared functions."""

from abc import abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, cast

from quartet.config import Recipe
from quartet.errors import SetupError
from quartet.part import Part
from quartet.registry import find
from quartet.report.follow import News
from quartet.telemetry.metrics import described


class Sink(Part):
    """Destination of a run's records. One object is made, in the sink's own process; an error ends only this process.

    Import the sink's package in `__init__` or later, not at the top of the file, so that a recipe that names the sink
    can be read without the package.
    """

    package: ClassVar[str] = ""
    """Package that must be importable; empty if none is needed. The extra that installs it for a shipped sink has the
    sink's name."""
    serves: ClassVar[bool] = False
    """True if the records can be read from the sink only while it runs; other sinks write to persistent places."""

    @abstractmethod
    def __init__(self, settings: Any, recipe: Recipe, run_dir: Path) -> None:
        super().__init__(settings)

    @abstractmethod
    def write(self, news: News) -> None:
        """Send `news`, the records since the last call, also if the sink was restarted in between."""

    @abstractmethod
    def close(self) -> None:
        """Send all records that were written, then close connections and files."""


def check_package(name: str) -> None:
    """Raise `ConfigError` if no sink has this name, and `SetupError` if the sink's package is not installed. The second
    error names the extra to install."""
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
    """Return a metric's name for a sink in which all roles share one namespace.

    The role is appended, unless `role` is the module that the metric's description names.
    """
    return name if described(name).module == role else f"{name}/{role}"
