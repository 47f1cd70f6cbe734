"""Lessons in reading tables, with which the start of runs on `lookups` begins.

A question names several numbers in any order, and the answer has their lines. So every example trains several look-ups,
and only the number tells which line is next: one table first, in which all words are of one kind, then two.
"""

import json
import random
from pathlib import Path

from benchmarks.locks.start import PlainChat, imitation
from quartet.env.environment.lookups import KEYS, NUMBERS, TABLES
from quartet.policy.prompt import turn_text
from quartet.train.sft import run_sft
from quartet.types import Observation

LESSONS = ((1, 2, 200), (1, 3, 300), (1, 5, 500), (2, 3, 600), (2, KEYS, 600))
"""Number of tables, numbers in each, and train steps of the lessons."""
CHATS, LEARNING_RATE = 12_000, 2e-3


def teach_reading(untrained: Path, folder: Path) -> Path:
    """Return a policy in `folder` that finds lines of a table by their numbers."""
    draw, policy = random.Random("reading"), untrained
    folder.mkdir(exist_ok=True)
    for tables, numbers, steps in LESSONS:
        data, output = folder / f"{tables}-{numbers}.jsonl", folder / f"{tables}-{numbers}"
        chats = [question(draw, tables, numbers) for _ in range(CHATS)]
        data.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
        run_sft(imitation(policy, data, output, steps=steps, learning_rate=LEARNING_RATE))
        policy = output
    return policy


def question(draw: random.Random, tables: int, numbers: int) -> PlainChat:
    """Return a question about the first of so many tables, and its answer."""
    relations, keys = draw.sample(list(TABLES), tables), draw.sample(NUMBERS, numbers)
    shown = [zip(keys, draw.sample(TABLES[one], numbers), strict=True) for one in relations]
    lines = ["".join(line) for table in shown for line in table]
    asked = draw.sample(lines[:numbers], numbers)
    draw.shuffle(lines)
    goal = " ".join([relations[0], *(line[0] for line in asked)])
    page = turn_text(Observation(goal=goal, text="\n".join(lines)), [])
    return {"messages": [{"role": "user", "content": page}, {"role": "assistant", "content": "".join(asked)}]}
