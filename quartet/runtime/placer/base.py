"""Interface of placers: they start the module processes of a run, each on the machine where it belongs."""

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from quartet.config import Recipe
from quartet.runtime.start_process import Started


class Placer(ABC):
    """Context manager that starts the module processes of one run. Inside its block the resources are reserved."""

    on_this_machine = False
    """True if `Started.pid` is always the id of a process of this machine."""

    def __init__(self, recipe: Recipe, run_dir: Path) -> None:
        self._recipe, self._run_dir = recipe, run_dir

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def start(self, module: str, log: Path) -> Started:
        """Start a module with its output appended to `log`. The module ends when this process ends, even by
        SIGKILL."""

    def __exit__(  # noqa: B027  (processes of this machine reserve nothing)
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the resources. All modules have ended."""


def make_placer(recipe: Recipe, run_dir: Path) -> Placer:
    """Return the placer of the recipe's `runtime.kind`."""
    if recipe.runtime.kind == "ray":
        from quartet.runtime.placer.on_ray import OnRay

        return OnRay(recipe, run_dir)
    from quartet.runtime.placer.here import Here

    return Here(recipe, run_dir)
