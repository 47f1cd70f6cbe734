"""The initial policy of runs on `worlds`: it has learned to copy words, and imitates the expert.

The examples are of every kind of world. A share `NOISE` of the moves is random, so that pages after a wrong move occur;
the expert's move is imitated on all of them. The policy solves short tasks often and long ones rarely.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.locks.kept_start import kept
from benchmarks.locks.start import PlainChat
from benchmarks.worlds.copying import teach_copying
from quartet.config import Recipe
from quartet.env.environment.worlds import FAMILIES, make_world
from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Move, World
from quartet.env.worlds.session import INPUT, elements, observe, written
from quartet.policy.make import make_policy
from quartet.policy.prompt import turn_text
from quartet.recipe.file import parse_recipe
from quartet.train.sft import run_sft

FIRST_SEED, TASKS_PER_FAMILY = 1000, 300
"""Seeds of the imitated tasks: none of them is a seed of training or evaluation."""
NOISE = 0.3
"""Share of random moves."""
STEPS, LEARNING_RATE, TOKENS_PER_BATCH = 1000, 3e-3, 4096
SIZES: dict[str, Any] = {"hidden_size": 64, "num_layers": 2, "num_heads": 4}


def worlds_start(folder: Path) -> Path:
    """Return the initial policy in `folder`, made there unless it is there."""
    chats = start_chats()
    makers, recipe = (__name__, teach_copying.__module__, "benchmarks.locks.start"), _recipe(Path("/"), Path("/"))
    return kept(folder, makers, chats, recipe, lambda: _make(folder, chats))


def start_chats() -> list[PlainChat]:
    """Return the chats that the initial policy imitates, one per move."""
    draw, seeds = random.Random("start"), range(FIRST_SEED, FIRST_SEED + TASKS_PER_FAMILY)
    return [chat for family in FAMILIES for seed in seeds for chat in _episode(make_world(family, seed), draw)]


def _episode(world: World, draw: random.Random) -> Iterator[PlainChat]:
    error, done = "", list[str]()
    for _ in range(world.max_turns):
        right = world.right_move()
        user, response = turn_text(observe(world, error), done), written(world, right)
        yield {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": response}]}
        move = _random_move(world, draw) if draw.random() < NOISE else right
        done.append(written(world, move))
        error = ""
        try:
            if world.move(move) is not None:
                return
        except ActionFailedError as failure:
            error = str(failure)


def _random_move(world: World, draw: random.Random) -> Move:
    """Return a move with a random element of the page, and a random word of goal and page to type."""
    line, seen = draw.choice(elements(world)), observe(world)
    return Move(
        line.name, draw.choice(re.findall(r"[a-z]+", f"{seen.goal}\n{seen.text}")) if line.kind == INPUT else None
    )


def _make(folder: Path, chats: list[PlainChat]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    make_policy(texts, folder / "untrained", vocab_size=1024, seed=0, **SIZES)
    words = sorted({word for text in texts for word in re.findall(r"[a-z]+", text)})
    recipe = _recipe(folder, teach_copying(folder / "untrained", words, folder / "copying"))
    Path(recipe.sft.data).write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    run_sft(recipe)


def _recipe(folder: Path, policy: Path) -> Recipe:
    """Return the recipe of the imitation by `policy` that makes the start in `folder`."""
    sft = {"data": str(folder / "start.jsonl"), "output": str(folder / "policy"), "steps": STEPS}
    recipe = {
        "name": "worlds-start",
        "model": {"path": str(policy)},
        "env": {"name": "worlds"},
        "sft": sft | {"learning_rate": LEARNING_RATE, "tokens_per_batch": TOKENS_PER_BATCH},
    }
    return parse_recipe(recipe, "benchmarks/worlds/start.py")
