"""A policy whose response lengths have a long tail: most responses are short, some are very long.

One response in seven begins with `hmm` and continues with a geometric number of dots; the others begin with `so` and
have fewer dots. Only two tokens matter, so even a tiny policy learns this within a minute of imitation.
"""

import math
import random
from pathlib import Path
from typing import NamedTuple

from benchmarks.desk_player import Messages, action_line, choose, episode, imitate, new_policy, press
from quartet.policy.prompt import turn_text

SHAPE = {"hidden_size": 64, "num_layers": 2, "num_heads": 2}
MAX_PRESSES = 16
EPISODES = 300
STEPS = 400
LONG_SHARE = 1 / 7


class Tail(NamedTuple):
    """Lengths of responses, in tokens."""

    long_dots: int
    """Mean number of dots in a long response."""
    short_dots: int
    """Mean number of dots in a short response."""
    max_tokens: int
    """Maximum length of a response; longer ones are cut."""


ACTING = Tail(long_dots=64, short_dots=8, max_tokens=256)
"""Lengths for an agent that acts turn by turn: 16 tokens on average."""
REASONING = Tail(long_dots=512, short_dots=64, max_tokens=1024)
"""Lengths for single turns with reasoning, as in APRIL: about 120 tokens on average."""


def make_start(folder: Path, tail: Tail, *, steps: int = STEPS, shape: dict[str, int] = SHAPE) -> Path:
    """Make the policy in `folder` unless it exists, and return its folder. Takes one or two minutes."""
    chats = [chat for seed in range(EPISODES) for chat in turns(seed, tail)]
    sft = {"steps": steps, "tokens_per_batch": 2048, "learning_rate": 3e-3}
    untrained = new_policy(folder / "untrained", chats, shape, vocab_size=800, texts=[])
    return imitate(folder, chats, untrained, **sft)


def turns(seed: int, tail: Tail) -> list[Messages]:
    """Return an episode as one chat per turn, as the loop `latest` would have recorded it."""
    desk, draw = episode(seed, MAX_PRESSES)
    chats: list[Messages] = []
    done: list[str] = []
    meant = ""
    while meant != "done":
        meant = choose(desk, draw)
        question, answer = turn_text(desk.observe(), done), speak(meant, tail, draw)
        chats.append([{"role": "user", "content": question}, {"role": "assistant", "content": answer}])
        done.append(action_line(meant))
        press(desk, meant)
    return chats


def speak(meant: str, tail: Tail, draw: random.Random) -> str:
    """Return a response of the player: dots, then the action."""
    long = draw.random() < LONG_SHARE
    dots = _geometric(tail.long_dots if long else tail.short_dots, draw)
    return f"{'hmm' if long else 'so'}{'.' * min(dots, tail.max_tokens)} {meant}\n{action_line(meant)}"


def _geometric(mean: float, draw: random.Random) -> int:
    """Draw a geometric number of this mean, at least 1."""
    return math.ceil(math.log(1 - draw.random()) / math.log(1 - 1 / mean)) or 1
