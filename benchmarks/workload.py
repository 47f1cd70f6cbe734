"""Workloads: delays of resets and steps of a simulated environment, and the number of button presses per episode."""

import random
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from quartet.errors import ConfigError

Seconds = Annotated[float, Meta(ge=0)]
Presses = Annotated[int, Meta(ge=1)]
_ADVICE = "set env.workload to a workload file, such as those in benchmarks/workloads, or leave it empty for no delays"


class Workload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a workload file: lists of equally likely values. A list of one value is a constant."""

    source: str
    """Origin of the values, for people who read the file."""
    time_scale: Annotated[float, Meta(gt=0)] = 1.0
    """Factor of all delays: simulated seconds per measured second."""
    reset_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    step_seconds: Annotated[list[Seconds], Meta(min_length=1)]
    presses: Annotated[list[Presses], Meta(min_length=1)]

    def reset_delay(self, draw: random.Random) -> float:
        """Draw the scaled duration of one reset, in seconds."""
        return self.time_scale * draw.choice(self.reset_seconds)

    def step_delay(self, draw: random.Random) -> float:
        """Draw the scaled duration of one step, in seconds."""
        return self.time_scale * draw.choice(self.step_seconds)


INSTANT = Workload(source="no delays", reset_seconds=[0.0], step_seconds=[0.0], presses=[3, 4, 5])


def read_workload(path: str | Path) -> Workload:
    """Read a workload; `INSTANT` for an empty path. Raise `ConfigError` if the file is missing or invalid."""
    if not path:
        return INSTANT
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Workload)
    except OSError as error:
        raise ConfigError(f"cannot read the workload {str(path)!r}: {error.strerror}", _ADVICE) from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not a workload: {error}", _ADVICE) from error
