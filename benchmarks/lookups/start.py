"""The initial policy of runs on `lookups`: it has learned to read tables, and imitates right answers.

The questions need one skill each: they are of the families `parametric` and `contextual`, with all relations. No
example needs both skills, so a run can only learn to combine them.
"""

import json
from pathlib import Path

from benchmarks.locks.kept_start import kept
from benchmarks.locks.start import PlainChat, imitation
from benchmarks.lookups.answers import Answers
from benchmarks.lookups.lessons import teach_reading
from quartet.config import Recipe
from quartet.env.environment.lookups import chain, page
from quartet.policy.load import load_policy
from quartet.policy.make import make_policy
from quartet.policy.prompt import turn_text
from quartet.train.sft import run_sft
from quartet.types import Observation, Task

SKILLS = ("parametric", "contextual")
EXAMPLES = 24_000
STEPS, LEARNING_RATE = 1200, 2e-3
LEAST_SHARE = 0.9
"""Minimum share of held-out questions of each skill that the start answers."""


def lookups_start(folder: Path) -> Path:
    """Return the initial policy in `folder`, made there unless it is there.

    Raises `RuntimeError` if a policy was made that has not learned its skills.
    """
    chats = start_chats()
    makers, recipe = (__name__, teach_reading.__module__), _recipe(Path("/"), Path("/"))
    return kept(folder, makers, chats, recipe, lambda: _make(folder, chats))


def start_chats() -> list[PlainChat]:
    """Return the chats that the initial policy imitates, in turn of each skill."""
    tasks = [Task(env="lookups", family=SKILLS[seed % len(SKILLS)], seed=seed) for seed in range(EXAMPLES)]
    return [chat(page(task)) for task in tasks]


def chat(seen: Observation) -> PlainChat:
    """Return a question with the expert's answer."""
    user, answer = turn_text(seen, []), "".join(chain(seen))
    return {"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]}


def _make(folder: Path, chats: list[PlainChat]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    texts = [message["content"] for chat in chats for message in chat["messages"]]
    make_policy(texts, folder / "untrained", vocab_size=1024, hidden_size=128, num_layers=2, num_heads=4, seed=0)
    recipe = _recipe(folder, teach_reading(folder / "untrained", folder / "reading"))
    Path(recipe.sft.data).write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    run_sft(recipe)
    model, tokenizer, _ = load_policy(recipe.sft.output)
    shares = Answers(tokenizer, recipe.evaluation.first_seed)(model)
    if missing := {skill: shares[skill] for skill in SKILLS if shares[skill] < LEAST_SHARE}:
        raise RuntimeError(
            f"the start in {folder} answers too few questions of its skills, {missing}, not {LEAST_SHARE} of them: "
            "delete that folder, and choose another LEARNING_RATE or more STEPS"
        )


def _recipe(folder: Path, policy: Path) -> Recipe:
    """Return the recipe of the imitation by `policy` that makes the start in `folder`."""
    return imitation(policy, folder / "start.jsonl", folder / "policy", steps=STEPS, learning_rate=LEARNING_RATE)
