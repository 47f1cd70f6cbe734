"""The policy every run starts from: it speaks the grammar, tells signs apart, and knows no code.

It has imitated presses drawn at random, every button of a lock equally often whatever the sign, and practice signs,
which occur in no lock, with one right button each: so it attends to the sign, and is uniform over the buttons of every
lock. Which words it knows is all that it has of either suite.
"""

import asyncio
import json
import random
from collections.abc import Iterable
from pathlib import Path

from benchmarks.locks.demonstrations import demonstrate, write_chats
from quartet.data.ledger import Ledger
from quartet.env.environment.locks import JAMMED, LOCKS, ROOMS, signs
from quartet.observe.record import Recorder
from quartet.policy.make import make_policy
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.recipe_file import parse_recipe
from quartet.rollout.prompt import turn_text
from quartet.train.sft import run_sft
from quartet.types import GroupMember, Observation

PRACTICE = [f"practice{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
MOST_BUTTONS = max(lock.buttons for lock in LOCKS.values())
MOST_EARLIER_ACTIONS = 11
COPIES, PRACTICE_COPIES = 6, 30
"""Examples of every sign and button, and of every practice sign."""
STEPS, IMITATION_STEPS = 1500, 800
DEMONSTRATION_COPIES = 120
Starts = dict[tuple[str, bool], str]
"""Policy folder by suite, and whether it has imitated the suite's demonstrations."""


def make_start(folder: Path) -> Path:
    """Make tokenizer, model and cold start in `folder`; returns the policy's folder, always the same."""
    chats = [_chat(*example) for example in _examples(random.Random("start"))]
    data = folder / "start.jsonl"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    make_policy(texts, folder / "untrained", vocab_size=1024, hidden_size=32, num_layers=1, num_heads=2, seed=0)
    return imitate(folder / "untrained", data, folder / "policy", steps=STEPS, learning_rate=1e-2)


def make_starts(folder: Path, suites: Iterable[str]) -> Starts:
    """The start of every suite, and beside it the one that has imitated the suite's demonstrations too."""
    policy, starts = make_start(folder), {}
    for suite in suites:
        data = write_chats(_demonstrations(suite, policy, folder / f"expert-{suite}"), folder / f"{suite}.jsonl")
        # Among what it imitated before: alone, so few demonstrations would make it forget the rest.
        data.write_text((folder / "start.jsonl").read_text() + data.read_text() * DEMONSTRATION_COPIES)
        imitator = imitate(policy, data, folder / f"imitator-{suite}", steps=IMITATION_STEPS, learning_rate=3e-3)
        starts |= {(suite, False): str(policy), (suite, True): str(imitator)}
    return starts


def _demonstrations(suite: str, policy: Path, run_dir: Path) -> list[GroupMember]:
    data = {"name": "expert", "model": {"path": str(policy)}, "env": {"name": "locks", "suite": suite}}
    recipe = parse_recipe(data | {"rollout": {"max_tokens": 2}}, "benchmarks/locks/start.py")
    ledger, recorder = Ledger.create(run_dir), Recorder(run_dir, "expert")
    try:
        return asyncio.run(demonstrate(recipe, ledger, load_tokenizer(policy), recorder))
    finally:
        recorder.close()
        ledger.close()


def imitate(policy: Path, data: Path, output: Path, *, steps: int, learning_rate: float) -> Path:
    """Supervised fine-tuning on chats; returns `output`."""
    sft = {"data": str(data), "output": str(output), "steps": steps, "learning_rate": learning_rate}
    recipe = {
        "name": "locks-start",
        "model": {"path": str(policy)},
        "env": {"name": "locks"},
        "sft": sft | {"tokens_per_batch": 2048},
    }
    run_sft(parse_recipe(recipe, "benchmarks/locks/start.py"))
    return output


def _examples(draw: random.Random) -> list[tuple[str, int, random.Random]]:
    """Sign, button to press, and where the rest is drawn from."""
    buttons = {sign: lock.buttons for family, lock in LOCKS.items() for sign in signs(family)}
    buttons[JAMMED] = MOST_BUTTONS
    uniform = [(sign, press) for sign, count in buttons.items() for press in range(1, count + 1)]
    practised = [(sign, draw.randint(1, MOST_BUTTONS)) for sign in PRACTICE]
    return [(sign, press, draw) for sign, press in [*uniform * COPIES, *practised * PRACTICE_COPIES]]


def _chat(sign: str, press: int, draw: random.Random) -> dict[str, list[dict[str, str]]]:
    """A turn with the earlier actions of a longer or shorter episode."""
    earlier = draw.randrange(MOST_EARLIER_ACTIONS + 1)
    actions = [f"click [{draw.randint(1, MOST_BUTTONS)}]" for _ in range(earlier)]
    page = Observation(goal=f"Open {draw.choice(ROOMS)}.", text=f"heading {sign}")
    user = {"role": "user", "content": turn_text(page, actions)}
    return {"messages": [user, {"role": "assistant", "content": f"click [{press}]"}]}
