"""Main program of a child process that computes one reward.

It reads a `Setup` and then batches of cases from its standard input, and writes a `Started` and then a list of scores
per batch to its standard output.
"""

import asyncio
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from quartet.env.child_streams import converse, limit_memory, read_frame, write_frame
from quartet.env.rewards.base import Case, Reward, Score
from quartet.env.rewards.function import Function
from quartet.errors import QuartetError, SetupError
from quartet.fault import fault_of
from quartet.registry import load_class


class Setup(Struct, frozen=True, kw_only=True):
    """The reward that a child computes."""

    path: str
    """`module:Class` of a part, or `module:function`."""
    label: str
    """Name of the component of a reward that is a single number."""
    settings: dict[str, Any]
    timeout_seconds: float
    max_memory_megabytes: int


class Started(Struct, frozen=True, kw_only=True):
    """The first answer of a child."""

    calls_at_once: int = 1
    error: str = ""
    """Reason why the reward cannot be loaded; the child then ends."""
    machine_lacks: bool = False
    """True if the reason is a package or something else that this machine lacks, not a mistake of the reward."""


def run(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the parent closes the stream."""
    setup = msgspec.msgpack.decode(read_frame(requests), type=Setup)
    limit_memory(setup.max_memory_megabytes)
    try:
        reward = _load(setup)
        reward.label = setup.label
    except Exception as error:  # noqa: BLE001  (the module may be the user's)
        _write(answers, Started(error=_reason(error), machine_lacks=_is_lack(error, setup.path)))
        return
    _write(answers, Started(calls_at_once=reward.calls_at_once))
    with asyncio.Runner() as runner:
        while frame := read_frame(requests):
            cases = msgspec.msgpack.decode(frame, type=list[Case])
            _write(answers, runner.run(reward.score_all(cases, setup.timeout_seconds)))


def _load(setup: Setup) -> Reward:
    loaded = load_class(setup.path, "reward")
    if not (isinstance(loaded, type) and issubclass(loaded, Reward)):
        return Function(Function.Settings.model_validate(setup.settings), loaded)
    return loaded(loaded.Settings.model_validate(setup.settings))


def _is_lack(error: Exception, path: str) -> bool:
    """Return whether this machine lacks something for the reward at `path`, such as a package that it imports."""
    missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
    own = path.partition(":")[0]
    return isinstance(error, SetupError) or bool(missing and not f"{own}.".startswith(f"{missing}."))


def _reason(error: Exception) -> str:
    """Return in one line why a reward cannot be loaded; for an exception of its module with the place in the code."""
    return " ".join(str(error).split()) if isinstance(error, QuartetError) else fault_of(error).summary


def _write(stream: BinaryIO, message: Started | list[Score]) -> None:
    write_frame(stream, msgspec.msgpack.encode(message))


if __name__ == "__main__":
    converse(run)
