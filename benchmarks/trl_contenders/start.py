"""The policy that every contender starts from: 32 tokens per turn, 3.4 M parameters, a vocabulary of 4,096.

It has the shape of the model of `benchmarks/engine.py`. Half of its vocabulary is in no text. Another model imitates
the same player; the number of tokens per turn is then that of its tokenizer.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from benchmarks.desk_player import Messages, action_line, choose, episode, imitate, new_policy, press
from benchmarks.engine_contenders.base import VOCAB_SIZE
from benchmarks.trl_contenders.base import MAX_PRESSES
from quartet.policy.prompt import turn_text

SHAPE = {"hidden_size": 256, "num_layers": 4, "num_heads": 4, "num_kv_heads": 2, "intermediate_size": 512}
THOUGHT = "the page is open and it has some buttons and text, now"
"""Text before the action; with a button and the end of the turn it has 32 tokens."""
CONVERSATIONS = 400
STEPS = 60
MODEL_STEPS = 40
"""Train steps of a model that knows a language already."""


def make_start(folder: Path, *, steps: int = STEPS, shape: dict[str, int] = SHAPE) -> Path:
    """Make the policy in `folder` unless it exists, and return its folder. Takes minutes."""
    chats, words = conversations(), " ".join(_filler_words())
    untrained = new_policy(folder / "untrained", chats, shape, vocab_size=VOCAB_SIZE, texts=[words])
    return imitate(folder, chats, untrained, steps=steps, tokens_per_batch=3072, learning_rate=2e-3)


def teach(model: Path, folder: Path, *, steps: int = MODEL_STEPS) -> Path:
    """Let another model imitate the player in `folder` unless it did, and return its folder. Takes minutes."""
    return imitate(folder, conversations(), model, steps=steps, tokens_per_batch=1024, learning_rate=2e-4, threads=2)


def conversations() -> list[Messages]:
    return [conversation(seed) for seed in range(CONVERSATIONS)]


def speak(meant: str) -> str:
    """Return a response of the player."""
    return f"{THOUGHT} {meant}\n{action_line(meant)}"


def conversation(seed: int) -> Messages:
    """Return an episode as chat messages, as the loop `append` would have recorded it."""
    desk, draw = episode(seed, MAX_PRESSES)
    messages: Messages = []
    meant = ""
    while meant != "done":
        meant = choose(desk, draw)
        messages.append({"role": "user", "content": turn_text(desk.observe(), [])})
        messages.append({"role": "assistant", "content": speak(meant)})
        press(desk, meant)
    return messages


def _filler_words() -> Iterator[str]:
    """Yield made-up words, each twice, that fill the vocabulary and are in no text."""
    for letters in product("bdfgklmnprst", "aeiou", "bdfgklmnprst", "aeiou"):
        yield from ["x" + "".join(letters)] * 2
