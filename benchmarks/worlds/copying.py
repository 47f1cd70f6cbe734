"""Lessons in copying, with which the imitation of a tiny policy begins.

A policy of two layers can look something up, such as the reference of a named element, once it can find an earlier
occurrence of a word and copy what follows. It learns that from repeated sequences of words, if they are short at first.
docs/lab/learning.md has what the lessons changed. The exercises of recipes/miniwob/copying.py go on to whole pages.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.locks.start import PlainChat, imitation
from quartet.train.sft import run_sft

LENGTHS = (3, 5, 8, 12, 18)
"""Number of words in the sequences of each lesson."""
CHATS, STEPS, LEARNING_RATE = 4000, 150, 3e-3


def teach_copying(untrained: Path, words: Sequence[str], folder: Path) -> Path:
    """Return a policy in `folder` that has learned to repeat sequences of different words."""
    draw, policy = random.Random("copying"), untrained
    folder.mkdir(exist_ok=True)
    for length in LENGTHS:
        data, output = folder / f"{length}.jsonl", folder / str(length)
        chats = [_repetition(draw.sample(words, length)) for _ in range(CHATS)]
        data.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        run_sft(imitation(policy, data, output, steps=STEPS, learning_rate=LEARNING_RATE))
        policy = output
    return policy


def _repetition(words: Sequence[str]) -> PlainChat:
    sequence = " ".join(words)
    return {"messages": [{"role": "user", "content": sequence}, {"role": "assistant", "content": sequence}]}
