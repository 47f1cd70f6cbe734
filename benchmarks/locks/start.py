"""The policy every run starts from: it speaks the grammar, tells signs apart, and knows no code.

It has imitated presses drawn at random, every button of a lock equally often whatever the sign, and practice signs,
which occur in no lock, with one right button each: so it attends to the sign, and is uniform over the buttons of every
lock. Which words it knows is all that it has of either suite.
"""

import json
import random
from pathlib import Path

from quartet.env.locks import JAMMED, LOCKS, ROOMS, signs
from quartet.policy.make import make_policy
from quartet.recipe_file import parse_recipe
from quartet.rollout.prompt import turn_text
from quartet.train.sft import run_sft
from quartet.types import Observation

PRACTICE = [f"practice{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
MOST_BUTTONS = max(lock.buttons for lock in LOCKS.values())
MOST_EARLIER_ACTIONS = 11
COPIES = 6
"""Examples of every sign and button."""


def make_start(folder: Path) -> Path:
    """Make the tokenizer, the model and its cold start in `folder`; returns the policy's folder. The same every time."""
    chats = [_chat(*example) for example in _examples(random.Random("start"))]
    data = folder / "start.jsonl"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    make_policy(texts, folder / "untrained", vocab_size=1024, hidden_size=32, num_layers=1, num_heads=2, seed=0)
    return imitate(folder / "untrained", data, folder / "policy", steps=400, learning_rate=5e-3)


def imitate(policy: Path, data: Path, output: Path, *, steps: int, learning_rate: float) -> Path:
    """Supervised fine-tuning on chats; returns `output`."""
    sft = {"data": str(data), "output": str(output), "steps": steps, "learning_rate": learning_rate}
    recipe = {
        "name": "locks-start",
        "model": {"path": str(policy)},
        "env": {"name": "locks"},
        "sft": sft | {"tokens_per_batch": 1024},
    }
    run_sft(parse_recipe(recipe, "benchmarks/locks/start.py"))
    return output


def _examples(draw: random.Random) -> list[tuple[str, int, random.Random]]:
    """Sign, button to press, and where the rest is drawn from."""
    buttons = {sign: lock.buttons for family, lock in LOCKS.items() for sign in signs(family)}
    buttons[JAMMED] = MOST_BUTTONS
    uniform = [(sign, press) for sign, count in buttons.items() for press in range(1, count + 1)]
    practised = [(sign, draw.randint(1, MOST_BUTTONS)) for sign in PRACTICE]
    return [(sign, press, draw) for sign, press in [*uniform, *practised] for _ in range(COPIES)]


def _chat(sign: str, press: int, draw: random.Random) -> dict[str, list[dict[str, str]]]:
    """A turn with the earlier actions of a longer or shorter episode."""
    earlier = draw.randrange(MOST_EARLIER_ACTIONS + 1)
    actions = [f"click [{draw.randint(1, MOST_BUTTONS)}]" for _ in range(earlier)]
    page = Observation(goal=f"Open {draw.choice(ROOMS)}.", text=f"heading {sign}")
    user = {"role": "user", "content": turn_text(page, actions)}
    return {"messages": [user, {"role": "assistant", "content": f"click [{press}]"}]}
