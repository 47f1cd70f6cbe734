"""Interface of branchers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.part import Part
from quartet.registry import find
from quartet.types import Call


class Brancher(Part):
    """Rule that decides where a running rollout is forked, and into how many children. A brancher keeps no state."""

    may_fork: ClassVar[bool] = True
    """False if the brancher never forks. Otherwise a run needs an environment that has snapshots or is
    deterministic."""
    reads_entropies: ClassVar[bool] = False
    """True if the brancher needs an engine that reports the entropies of tokens."""

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        engine: Any = find("engine", recipe.engine.name)
        if cls.reads_entropies and not engine.reports_entropies:
            raise ConfigError(
                f"the brancher {recipe.rollout.brancher.name!r} needs entropies, and the engine "
                f"{recipe.engine.name!r} reports none",
                "set engine.name = 'torch', or rollout.brancher = 'none'",
            )

    @abstractmethod
    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        """Return the number of children that fork just before `call`.

        The children share the calls `so_far` and the results of their actions, and each samples its own response to the
        prompt of `call`. The worker calls this method after every call that is sampled for training, in children too.
        It skips a rollout's first call, since a fork there would share no call. The first call that a child samples has
        a borrowed prompt; a child forked there would repeat the fork of its parent.
        """
