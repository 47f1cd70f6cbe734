"""Recordings of the expert that opens locks, as an environment without any lock (`quartet.env.environment.offline`)."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from quartet.config.section import Section
from quartet.env.environment.locks import FIRST_HELD_OUT_SEED, code, families, observe, rows
from quartet.env.environment.offline import Offline
from quartet.env.offline.recordings import RecordedStep, Recording, Recordings
from quartet.types import Task

TRAINING_ROWS = 4
"""Number of recordings for training of each family: the tasks that other experiments train on."""


class OfflineLocks(Offline):
    """The expert's presses in the rows of a suite's locks."""

    class Settings(Section):  # type: ignore[override]
        suite: str = "locks"
        """Suite of locks."""
        max_patches: int = 1
        """As in the environment `offline`."""

    settings: Settings  # type: ignore[assignment]

    @cached_property
    def recordings(self) -> Mapping[str, Recordings]:
        """The recordings by family."""
        return {family: _of_family(family) for family in families(self.settings.suite)}


def _of_family(family: str) -> Recordings:
    training, held_out = rows(family)
    return Recordings(
        training=_recorded(family, training[:TRAINING_ROWS], 0),
        held_out=_recorded(family, held_out, FIRST_HELD_OUT_SEED),
    )


def _recorded(family: str, of_rows: Iterable[tuple[str, ...]], first_seed: int) -> list[Recording]:
    right = code(family)
    return [
        [RecordedStep(observe(task, sign), f"click [{right[sign]}]") for sign in row]
        for seed, row in enumerate(of_rows, first_seed)
        for task in [Task(env="locks", family=family, seed=seed)]
    ]
