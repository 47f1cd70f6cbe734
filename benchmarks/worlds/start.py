"""The initial policy of runs on `worlds`: it imitates the expert, with random moves in between.

The examples are of every kind of world, and a share `NOISE` of their moves is random. A policy that imitates them well
solves short tasks sometimes and long ones rarely, and RL can make it surer.
"""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.locks.kept_start import kept
from benchmarks.locks.start import PlainChat
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
NOISE = 0.4
"""Share of random moves."""
STEPS, LEARNING_RATE, TOKENS_PER_BATCH = 1200, 3e-3, 4096
SIZES: dict[str, Any] = {"hidden_size": 64, "num_layers": 2, "num_heads": 4}


def worlds_start(folder: Path) -> Path:
    """Return the initial policy in `folder`, made there unless it is there."""
    chats = start_chats()
    return kept(folder, __name__, chats, _recipe(Path("/")), lambda: _make(folder, chats))


def start_chats() -> list[PlainChat]:
    """Return the chats that the initial policy imitates, one per move."""
    draw, seeds = random.Random("start"), range(FIRST_SEED, FIRST_SEED + TASKS_PER_FAMILY)
    return [chat for family in FAMILIES for seed in seeds for chat in _episode(make_world(family, seed), draw)]


def _episode(world: World, draw: random.Random) -> Iterator[PlainChat]:
    error, done = "", list[str]()
    for _ in range(world.max_turns):
        move = _random_move(world, draw) if draw.random() < NOISE else world.right_move()
        response, user = written(world, move), turn_text(observe(world, error), done)
        yield {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": response}]}
        done.append(response)
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
    recipe = _recipe(folder)
    folder.mkdir(parents=True, exist_ok=True)
    Path(recipe.sft.data).write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    make_policy(texts, recipe.model.path, vocab_size=1024, seed=0, **SIZES)
    run_sft(recipe)


def _recipe(folder: Path) -> Recipe:
    """Return the recipe of the imitation that makes the policy in `folder`."""
    sft = {"data": str(folder / "start.jsonl"), "output": str(folder / "policy"), "steps": STEPS}
    recipe = {
        "name": "worlds-start",
        "model": {"path": str(folder / "untrained")},
        "env": {"name": "worlds"},
        "sft": sft | {"learning_rate": LEARNING_RATE, "tokens_per_batch": TOKENS_PER_BATCH},
    }
    return parse_recipe(recipe, "benchmarks/worlds/start.py")
