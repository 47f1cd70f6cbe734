"""Workloads: how long the resets and steps of a pretended environment take, and how many presses its episodes need."""

import random
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from quartet.errors import ConfigError

Seconds = Annotated[float, Meta(ge=0)]
Presses = Annotated[int, Meta(ge=1)]
_ADVICE = "env.workload names a workload file, or nothing for no delays; benchmarks/workloads holds some"


class Workload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equally likely values each; a list of one is a constant. Read from a JSON file."""

    source: str
    """Where the values come from, for people."""
    time_scale: Annotated[float, Meta(gt=0)] = 1.0
    """What takes this many seconds here took 1 second there."""
    reset_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    step_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    presses: Annotated[list[Presses], Meta(min_length=1)]

    def reset_delay(self, draw: random.Random) -> float:
        """Seconds of one reset, scaled."""
        return self.time_scale * draw.choice(self.reset_seconds)

    def step_delay(self, draw: random.Random) -> float:
        """Seconds of one step, scaled."""
        return self.time_scale * draw.choice(self.step_seconds)


INSTANT = Workload(source="nobody waits", reset_seconds=[0.0], step_seconds=[0.0], presses=[3, 4, 5])


def read_workload(path: str | Path) -> Workload:
    """`INSTANT` for an empty path. Raises `ConfigError` for a file that is missing or no workload."""
    if not path:
        return INSTANT
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Workload)
    except OSError as error:
        raise ConfigError(f"cannot read the workload {str(path)!r}: {error.strerror}", _ADVICE) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no workload: {error}", _ADVICE) from error
