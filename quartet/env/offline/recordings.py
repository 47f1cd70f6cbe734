"""Recorded successes of an expert, read from chats with one line per turn."""

from collections import defaultdict
from collections.abc import Mapping
from math import ceil
from pathlib import Path

import msgspec
from msgspec import Struct

from quartet.errors import ConfigError
from quartet.types import Message, Observation

FORM = '{"messages": [user, assistant], "family": "login", "seed": 0, "turn": 0}'


class RecordedStep(Struct, frozen=True):
    """One turn of the expert."""

    observation: Observation
    action: str


Recording = list[RecordedStep]


class Recordings(Struct, frozen=True, kw_only=True):
    """The recordings of one family, in the order of their seeds."""

    training: list[Recording]
    held_out: list[Recording]


class _Line(Struct):
    messages: list[Message]
    family: str
    seed: int
    turn: int


def read_recordings(path: Path, held_out_share: float) -> Mapping[str, Recordings]:
    """Return the recordings of each family. The last ones of each are held out: `held_out_share` of them, rounded up.

    A user's message is the text of a turn (`turn_text`): its first line is the goal, and its last lines repeat the
    earlier actions. Raise `ConfigError` for a file that cannot be read, a turn that is missing or does not repeat the
    earlier actions, and a family without a recording for training.
    """
    found: dict[str, dict[int, Recording]] = defaultdict(lambda: defaultdict(list))
    try:
        for number, text in enumerate(path.read_bytes().splitlines(), 1):
            line = msgspec.json.decode(text, type=_Line)
            recording = found[line.family][line.seed]
            if line.turn != len(recording) or [one.role for one in line.messages] != ["user", "assistant"]:
                raise ConfigError(f"{path}:{number} is not turn {len(recording)} of its recording", f"write {FORM}")
            recording.append(_step(line, recording, f"{path}:{number}"))
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"env.data: {path} cannot be read: {error}", f"write one turn per line: {FORM}") from error
    return {family: _split(family, of_seeds, held_out_share) for family, of_seeds in found.items()}


def _step(line: _Line, before: Recording, where: str) -> RecordedStep:
    """Return the turn of a line, whose observation does not repeat the earlier actions."""
    user, assistant = line.messages
    done = "".join(f"\ndid {step.action}" for step in before)
    if not user.content.endswith(done):
        raise ConfigError(f"{where} does not end with the earlier actions", "record turns with the loop 'latest'")
    goal, _, page = user.content.removesuffix(done).partition("\n")
    return RecordedStep(Observation(goal=goal, text=page), assistant.content)


def _split(family: str, of_seeds: Mapping[int, Recording], held_out_share: float) -> Recordings:
    recordings = [of_seeds[seed] for seed in sorted(of_seeds)]
    kept = len(recordings) - ceil(held_out_share * len(recordings))
    if kept < 1:
        raise ConfigError(f"env.data has no recording of {family!r} for training", "lower env.held_out_share")
    return Recordings(training=recordings[:kept], held_out=recordings[kept:])
