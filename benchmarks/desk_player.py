"""Policies for benchmarks on the simulated desktop: each imitates a player that presses all buttons equally often.

The text of the player's responses differs between benchmarks. Such a policy knows when to answer `done`, and that a
button is named with its reference. It does not know which button is right.
"""

import json
import random
from pathlib import Path
from typing import Any

from benchmarks.desk import BUTTONS, ENVIRONMENT, Desk
from benchmarks.workload import Workload
from quartet.actions.grammar import parse_action
from quartet.recipe.file import parse_recipe
from quartet.types import Task

Messages = list[dict[str, str]]


def episode(seed: int, max_presses: int) -> tuple[Desk, random.Random]:
    """Return a desk of 1 to `max_presses` presses, and the random generator of its player."""
    presses = list(range(1, max_presses + 1))
    workload = Workload(source="practice", reset_seconds=[0.0], step_seconds=[0.0], presses=presses)
    return Desk(Task(env=ENVIRONMENT, family="press", seed=seed), workload), random.Random(seed)


def choose(desk: Desk, draw: random.Random) -> str:
    """Return the player's choice: any button, or `done` on a finished page."""
    return "done" if desk.finished else draw.choice(BUTTONS)


def press(desk: Desk, meant: str) -> None:
    """Apply the player's choice to the desk."""
    if meant != "done":
        desk.press(parse_action(action_line(meant)))


def action_line(meant: str) -> str:
    """Return the line of a response that the environment parses."""
    return "done" if meant == "done" else f"click {meant} [{BUTTONS.index(meant) + 1}]"


def new_policy(
    folder: Path, chats: list[Messages], shape: dict[str, int], *, vocab_size: int, texts: list[str]
) -> Path:
    """Make an untrained policy of this shape in `folder` unless it exists, and return `folder`.

    The tokenizer is made of the words of the chats and of `texts`.
    """
    from quartet.policy.make import make_policy

    if not folder.is_dir():
        words = [*(message["content"] for chat in chats for message in chat), *texts]
        make_policy(words, folder, vocab_size=vocab_size, **shape)
    return folder


def imitate(folder: Path, chats: list[Messages], untrained: Path, **sft: Any) -> Path:
    """Train a policy on the chats unless `folder/policy` exists, and return that folder.

    `sft` are settings of the section `sft`.
    """
    from quartet.train.sft import run_sft

    policy, data = folder / "policy", folder / "chats.jsonl"
    if policy.is_dir():
        return policy
    folder.mkdir(parents=True, exist_ok=True)
    data.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    recipe = {
        "name": "player",
        "model": {"path": str(untrained)},
        "env": {"name": ENVIRONMENT},
        "rollout": {"system_prompt": ""},  # the conversation that every contender has
        "sft": {"data": str(data), "output": str(policy), **sft},
    }
    run_sft(parse_recipe(recipe, "benchmarks.desk_player"))
    return policy
