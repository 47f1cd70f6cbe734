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
from quartet.errors import ConfigError, QuartetError
from quartet.fault import fault_of
from quartet.registry import load_class


class Setup(Struct, frozen=True, kw_only=True):
    """The reward that a child computes."""

    path: str
    """`module:Class` of a part, or `module:function`."""
    settings: dict[str, Any]
    timeout_seconds: float
    max_memory_megabytes: int


class Started(Struct, frozen=True, kw_only=True):
    """The first answer of a child."""

    calls_at_once: int = 1
    error: str = ""
    """Reason why the reward cannot be loaded; the child then ends."""
    wrong_recipe: bool = False
    """True if the recipe names a reward or a setting that does not exist."""


def run(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the parent closes the stream."""
    setup = msgspec.msgpack.decode(read_frame(requests), type=Setup)
    limit_memory(setup.max_memory_megabytes)
    try:
        reward = load_reward(setup)
    except Exception as error:  # noqa: BLE001  (the module may be the user's)
        _write(answers, Started(error=reason(error), wrong_recipe=isinstance(error, ConfigError)))
        return
    _write(answers, Started(calls_at_once=reward.calls_at_once))
    with asyncio.Runner() as runner:
        while frame := read_frame(requests):
            cases = msgspec.msgpack.decode(frame, type=list[Case])
            _write(answers, runner.run(reward.score_all(cases, setup.timeout_seconds)))


def load_reward(setup: Setup) -> Reward:
    """Make the reward. Raise any exception of the module that has it."""
    loaded = load_class(setup.path, "reward")
    if not (isinstance(loaded, type) and issubclass(loaded, Reward)):
        return Function(Function.Settings.model_validate(setup.settings), loaded)
    return loaded(loaded.Settings.model_validate(setup.settings))


def reason(error: Exception) -> str:
    """Return in one line why a reward cannot be loaded; for an exception of its module with the place in the code."""
    return " ".join(str(error).split()) if isinstance(error, QuartetError) else fault_of(error).summary


def _write(stream: BinaryIO, message: Started | list[Score]) -> None:
    write_frame(stream, msgspec.msgpack.encode(message))


if __name__ == "__main__":
    converse(run)
