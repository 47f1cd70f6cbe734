"""The initial policy of all runs: it knows the action grammar and tells signs apart, but knows no lock's code.

It imitates random presses, in which every button of a lock is pressed equally often whatever the sign. It also imitates
practice signs, which are in no lock and have one right button each. So it attends to the sign, and is uniform over the
buttons of every sign. Of the suites it knows only the words.

It reads turns of one message each, or conversations (`Form`).
"""

import asyncio
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import convert

from benchmarks.locks.demonstrations import demonstrate, write_chats
from benchmarks.locks.variants import GRPO
from quartet.config import Recipe
from quartet.env.environment.locks import JAMMED, LOCKS, ROOMS, SUITES, buttons
from quartet.ledger import Ledger
from quartet.part import NoSettings
from quartet.policy.chat import Chat
from quartet.policy.examples import chat_example, pad, padding_id
from quartet.policy.load import load_policy
from quartet.policy.make import make_policy
from quartet.policy.prompt import turn_text
from quartet.policy.renderer import Renderer
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.recipe.file import parse_recipe
from quartet.rollout.history.all import AllHistory
from quartet.rollout.history.compressed import CompressedHistory
from quartet.telemetry.record import Recorder
from quartet.train.sft import learned_logits, run_sft
from quartet.types import GroupMember, Observation, Turn

STARTS = (("locks", "locks-2"), ("locks-late", "locks-first"))
"""Suites whose words one initial policy knows. A further suite gets a start of its own, so that the policies of
published results stay as they are."""
PRACTICE = [f"practice{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
MOST_BUTTONS = max(lock.buttons for lock in LOCKS.values())
MOST_EARLIER_ACTIONS = 11
COPIES, PRACTICE_COPIES = 24, 120
"""Number of examples of every sign and button, and of every practice sign. Each page is imitated only about twice, so
that pages are not memorised."""
STEPS, IMITATION_STEPS = 3000, 800
LEARNING_RATE, IMITATION_LEARNING_RATE = 5e-3, 3e-3
PRACTICE_ROUNDS = 4
"""Number of presses of every practice sign with which a start is judged."""
LEAST_PRACTICE = 0.95
"""Minimum mean probability of the right button on practice signs. With twice the learning rate it was 0.2: such a
policy ignores the sign, and plain GRPO learns nothing from it."""
DEMONSTRATION_COPIES = 480
MOST_TURNS: int = GRPO["rollout"]["max_turns"]
"""Number of turns of the longest conversation that a start imitates."""
Form = Literal["turns", "conversations"]
"""Prompts that a start reads: those of the loop `latest`, or those of the loop `screens` with all pages and with
placeholders for all but the newest one."""
PlainChat = dict[str, Any]
"""A chat as JSON has it."""
Press = tuple[str, int]
"""A sign and a button to press."""
Starts = dict[tuple[str, bool], str]
"""Policy folder by suite, and by whether the policy has imitated the suite's demonstrations."""


def make_start(folder: Path, suite: str = "locks", form: Form = "turns") -> Path:
    """Make the tokenizer and the trained model in `folder`, and return the policy's folder. It knows the words of the
    `suite`, and reads prompts of the `form`. The result is deterministic.

    Raises `RuntimeError` if the policy does not tell signs apart.
    """
    recipe, chats = start_recipe(folder), start_chats(suite, form)
    folder.mkdir(parents=True, exist_ok=True)
    Path(recipe.sft.data).write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    make_policy(texts, recipe.model.path, vocab_size=1024, hidden_size=32, num_layers=1, num_heads=2, seed=0)
    run_sft(recipe)
    policy = Path(recipe.sft.output)
    for prompts, practised in practice_chats(suite, form).items():
        if (chance := practice_success(policy, practised)) < LEAST_PRACTICE:
            raise RuntimeError(
                f"the start presses the right button of a practice sign in {prompts} with probability {chance:.2f}, "
                f"not {LEAST_PRACTICE}: choose another LEARNING_RATE or more STEPS"
            )
    return policy


@torch.inference_mode()
def practice_success(policy: Path, chats: Sequence[PlainChat]) -> float:
    """Return the mean probability of the last answers of chats, which were never imitated."""
    model, tokenizer, _ = load_policy(policy)
    renderer = Renderer(tokenizer)
    last_alone = [chat | {"unlearned": [*range(len(chat["messages"]) // 2 - 1)]} for chat in chats]
    batch = pad([chat_example(convert(chat, Chat), renderer) for chat in last_alone], padding_id(tokenizer))
    logits_NV, targets_N = learned_logits(model, batch)
    logprobs_N = logits_NV.log_softmax(-1).gather(1, targets_N[:, None])[:, 0]
    return logprobs_N.reshape(len(chats), -1).sum(1).exp().mean().item()


def practice_chats(suite: str, form: Form) -> dict[str, list[PlainChat]]:
    """Return chats about practice signs, by the prompts that a start must read."""
    practised = [press for press in dict.fromkeys(_presses(suite)[0]) if press[0] in PRACTICE]
    chats = chats_of(practised * PRACTICE_ROUNDS, form, random.Random("practice"))
    if form == "turns":
        return {"turns": chats}
    return {
        "conversations": [chat for chat in chats if not chat["unlearned"]],
        "conversations with placeholders": [chat for chat in chats if chat["unlearned"]],
    }


def start_chats(suite: str, form: Form = "turns") -> list[PlainChat]:
    """Return the chats that a start for the suite imitates."""
    presses, draw = _presses(suite)
    if form == "conversations":
        draw.shuffle(presses)
    return chats_of(presses, form, draw)


def chats_of(presses: Sequence[Press], form: Form, draw: random.Random) -> list[PlainChat]:
    """Return chats with all these presses; the generator draws the rest of the pages."""
    if form == "turns":
        return [_chat(sign, press, draw) for sign, press in presses]
    chats, left = list[PlainChat](), [*presses]
    while left:
        turns = draw.randint(1, MOST_TURNS)
        chats += _conversations(left[:turns], draw)
        left = left[turns:]
    return chats


def start_recipe(folder: Path) -> Recipe:
    """Return the recipe of the imitation that makes a start in `folder`."""
    return imitation(
        folder / "untrained", folder / "start.jsonl", folder / "policy", steps=STEPS, learning_rate=LEARNING_RATE
    )


def make_starts(folder: Path, suites: Iterable[str]) -> Starts:
    """Return the initial policy of every suite, and the policy that has imitated the suite's demonstrations as well."""
    policy, starts = make_start(folder), {}
    for suite in suites:
        data = write_chats(_demonstrations(suite, policy, folder / f"expert-{suite}"), folder / f"{suite}.jsonl")
        # Mixed with the earlier examples: few demonstrations alone would make the policy forget those.
        data.write_text((folder / "start.jsonl").read_text() + data.read_text() * DEMONSTRATION_COPIES)
        imitator = folder / f"imitator-{suite}"
        run_sft(imitation(policy, data, imitator, steps=IMITATION_STEPS, learning_rate=IMITATION_LEARNING_RATE))
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


def imitation(policy: Path, data: Path, output: Path, *, steps: int, learning_rate: float) -> Recipe:
    """Return the recipe that fine-tunes a policy on chats."""
    sft = {"data": str(data), "output": str(output), "steps": steps, "learning_rate": learning_rate}
    recipe = {
        "name": "locks-start",
        "model": {"path": str(policy)},
        "env": {"name": "locks"},
        "sft": sft | {"tokens_per_batch": 2048},
    }
    return parse_recipe(recipe, "benchmarks/locks/start.py")


def _presses(suite: str) -> tuple[list[Press], random.Random]:
    """Return signs with the buttons to press, and the random generator of the rest of the pages."""
    draw, suites = random.Random("start"), next(suites for suites in STARTS if suite in suites)
    families = [family for one in suites for family in SUITES[one]]
    counts = {sign: count for family in families for sign, count in buttons(family).items()} | {JAMMED: MOST_BUTTONS}
    uniform = [(sign, press) for sign, count in counts.items() for press in range(1, count + 1)]
    practised = [(sign, draw.randint(1, MOST_BUTTONS)) for sign in PRACTICE]
    return [*uniform * COPIES, *practised * PRACTICE_COPIES], draw


def _conversations(presses: Sequence[Press], draw: random.Random) -> Iterator[PlainChat]:
    """Yield the conversation of these presses with all pages, and one per press with placeholders for earlier pages.

    Of the former all presses are learned, of the latter the last one.
    """
    goal = f"Open {draw.choice(ROOMS)}."
    turns = [
        Turn(observation=Observation(goal=goal, text=f"heading {sign}"), call_index=n, response=f"click [{press}]")
        for n, (sign, press) in enumerate(presses)
    ]
    for history in (AllHistory(NoSettings()), CompressedHistory(CompressedHistory.Settings())):
        conversations = history.chats(turns)
        for number, messages in enumerate(conversations):
            yield {
                "messages": [{"role": one.role, "content": one.content} for one in messages],
                "unlearned": [*range(number)] if len(conversations) > 1 else [],
            }


def _chat(sign: str, press: int, draw: random.Random) -> PlainChat:
    """Return a chat of one turn, with a random number of earlier actions."""
    earlier = draw.randrange(MOST_EARLIER_ACTIONS + 1)
    actions = [f"click [{draw.randint(1, MOST_BUTTONS)}]" for _ in range(earlier)]
    page = Observation(goal=f"Open {draw.choice(ROOMS)}.", text=f"heading {sign}")
    user = {"role": "user", "content": turn_text(page, actions)}
    return {"messages": [user, {"role": "assistant", "content": f"click [{press}]"}]}
