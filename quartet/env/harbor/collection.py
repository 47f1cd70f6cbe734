"""Tasks of a run: those for training, and those for evaluation only."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from quartet.env.dataset.rows import split
from quartet.env.harbor.task import HarborTask, read_task
from quartet.errors import ConfigError

LOG = logging.getLogger(__name__)


class Collection(NamedTuple):
    """Tasks for training, and tasks for evaluation, which training does not draw."""

    training: list[HarborTask]
    held_out: list[HarborTask]


def collect(tasks: str, held_out: str, held_out_share: float, *, skip: bool) -> Collection:
    """Read folders of task folders. Without a folder `held_out`, a share of the tasks is held out.

    Raise `ConfigError` if there are no tasks of both sorts, or if one needs Docker; with `skip` the latter are left
    out.
    """
    known = {task.folder.name: task for task in _read(Path(tasks), skip=skip)}
    if held_out:
        found = Collection(list(known.values()), list(_read(Path(held_out), skip=skip)))
    else:
        parts = split([{"name": name} for name in known], held_out_share)
        found = Collection(*([known[row["name"]] for row in part] for part in parts))
    if not found.training or not found.held_out:
        raise ConfigError(
            f"{tasks} has {len(found.training)} tasks for training and {len(found.held_out)} for evaluation",
            "put task folders there, name another folder in env.held_out, or change env.held_out_share",
        )
    return found


def _read(folder: Path, *, skip: bool) -> Iterator[HarborTask]:
    for file in sorted(folder.glob("*/task.toml")):
        try:
            yield read_task(file.parent)
        except ConfigError as error:
            if not skip:
                raise ConfigError(error.what, f'{error.advice}, or set env.unsupported = "skip"') from error
            LOG.warning("%s", error.what)
