"""Make the games' rows and the initial policy of this recipe: `python -m recipes.orak.make_policy`.

The policy imitates a player that mostly moves at random, so that it knows the notation and plays badly. The same code
gives the same files.
"""

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from quartet.env.dataset.prompt import Prompts
from quartet.env.environment.tools import write_call
from quartet.files.whole_folder import CHECKSUMS
from quartet.policy.make import make_policy
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say
from quartet.train.sft import run_sft
from quartet.types import ToolCall

from .games import GAMES
from .players import any_move, greedy_move

HERE = Path(__file__).parent
ROWS = HERE / "games.jsonl"
SEEDS = range(150)
"""Seeds of each game, for training and for evaluation together."""
FIRST_SHOWN_SEED, SHOWN = 10_000, 100
"""First seed and number of the games of each kind that are imitated; they are no rows."""
GREEDY_SHARE = 0.3
"""Share of greedy moves in them."""
SFT = {"steps": 600, "tokens_per_batch": 2048, "learning_rate": 5e-3}


def rows() -> list[dict[str, Any]]:
    """Return the rows of the data set."""
    return [{"game": name, "seed": seed} for name in GAMES for seed in SEEDS]


def chat(game_name: str, seed: int, prompts: Prompts) -> list[dict[str, str]]:
    """Return a game as the conversation that a rollout of the recipe has."""
    game, draw = GAMES[game_name](seed), random.Random(f"shown/{game_name}/{seed}")
    *before, asked = prompts.messages({"game": game_name, "seed": seed})
    messages = [(one.role, one.content) for one in before] + [("user", f"{asked.content}\n{game.text()}")]
    while not game.over:
        move = (greedy_move if draw.random() < GREEDY_SHARE else any_move)(game, draw)
        game.play(move)
        call = write_call(ToolCall(name="play", arguments={"move": move}))
        messages += [("assistant", call), ("tool", game.text())]
    return [{"role": role, "content": content} for role, content in [*messages, ("assistant", "done")]]


def chats(prompts: Prompts) -> Iterator[list[dict[str, str]]]:
    """Yield the games that the policy imitates."""
    for seed in range(FIRST_SHOWN_SEED, FIRST_SHOWN_SEED + SHOWN):
        for name in GAMES:
            yield chat(name, seed, prompts)


def read_results(policy: Path) -> None:
    """Let the chat template of a policy show the results of tools as it shows a user's messages."""
    tokenizer = load_tokenizer(policy)
    tokenizer.chat_template = str(tokenizer.chat_template).replace("'system')", "'system', 'tool')")
    tokenizer.save_pretrained(policy)
    (policy / CHECKSUMS).unlink()  # an intended change


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=HERE / "policy", show_default=True)
def main(output: Path) -> None:
    """Write `games.jsonl` and the initial policy."""
    ROWS.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    settings = load_recipe(HERE / "recipe.toml").env.settings
    shown = list(chats(Prompts(settings["prompt"], settings["system"])))
    with tempfile.TemporaryDirectory() as scratch:
        data, untrained = Path(scratch) / "chats.jsonl", Path(scratch) / "untrained"
        data.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in shown))
        texts = [message["content"] for messages in shown for message in messages]
        make_policy(texts, untrained, vocab_size=1024, hidden_size=32, num_layers=2, num_heads=2, seed=0)
        read_results(untrained)
        changes = {"model.path": str(untrained), "sft.data": str(data), "sft.output": str(output)}
        changes |= {f"sft.{name}": value for name, value in SFT.items()}
        recipe = load_recipe(HERE / "recipe.toml", [f"{name}={json.dumps(value)}" for name, value in changes.items()])
        say(json.dumps(run_sft(recipe)))


if __name__ == "__main__":
    main()
