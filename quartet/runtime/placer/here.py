"""Modules as processes of this machine: forked from a warm server, or spawned."""

from pathlib import Path
from typing import Self

from quartet.runtime.placement import placed
from quartet.runtime.placer.base import Placer
from quartet.runtime.start_process import Started, warm_up
from quartet.runtime.start_ranks import start_ranks


class Here(Placer):
    """Starts modules on this machine. They share its processors, so nothing is reserved."""

    on_this_machine = True

    def __enter__(self) -> Self:
        if self._recipe.runtime.start_method == "forkserver":
            warm_up()
        return self

    def start(self, module: str, log: Path) -> Started:
        """Start a module as a child of this process or of its fork server."""
        one, method = placed(self._recipe, module), self._recipe.runtime.start_method
        return start_ranks(method, module, self._run_dir, log, threads=one.threads, ranks=one.ranks)
