"""Make the initial policy of this recipe: `python -m recipes.pixels.make_policy`.

Experts demonstrate the families of the suite in the browser; a tokenizer is made of the words of their goals, and an
untrained Qwen3-VL imitates the demonstrations.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from quartet.actions.format.location_tokens import location_tokens
from quartet.policy.load import LoadedPolicy
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.save import save_policy
from quartet.recipe.file import load_recipe
from quartet.terminal.progress import Watched
from quartet.terminal.say import say

from .demonstrate import RECIPE, Demonstration, read_demonstrations
from .imitate import imitate
from .lessons import prepare, start_from_white

HERE = Path(__file__).parent
STEPS, BATCH_SIZE, LEARNING_RATE = 800, 32, 2e-3
"""With 1,600 steps the policy already solves four families; with 800 there is more to learn by reinforcement."""
SECOND_TURN_SHARE = 0.3
"""Share of the second turns that are imitated. They are a click on a button that never moves, so a few are enough."""
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "num_layers": 3,
    "num_heads": 4,
    "vision_hidden_size": 128,
    "vision_layers": 3,
    "initial_std": 0.06,
}
PATCH_SIZE = 16


def location_parts() -> int:
    """Return the number of location tokens in the recipe's format of actions."""
    return load_recipe(RECIPE).rollout.actions.settings["parts"]


def make_untrained(demonstrations: Sequence[Demonstration], folder: Path) -> LoadedPolicy:
    """Write an untrained policy, with the words of the demonstrations and one token per part of the screen."""
    texts = [text for one in demonstrations for text in (one.text, one.response.partition(" ")[0])]
    tokens = location_tokens(location_parts())
    return make_vision_policy(texts, folder, ordered_tokens=tokens, patch_size=PATCH_SIZE, **SIZES)


@click.command()
@click.option(
    "--demonstrations",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    default=[Path("runs/pixels.msgpack")],
    show_default=True,
    help="File that `python -m recipes.pixels.demonstrate` wrote; may be given several times.",
)
@click.option("--output", type=click.Path(path_type=Path), default=HERE / "policy", show_default=True)
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
def main(demonstrations: tuple[Path, ...], output: Path, steps: int, seed: int, threads: int) -> None:
    """Make the policy from demonstrations."""
    torch.set_num_threads(threads)
    draw = np.random.default_rng(seed)
    read = [one for path in demonstrations for one in read_demonstrations(path)]
    chosen = [one for one in read if one.turn == 0 or draw.random() < SECOND_TURN_SHARE]
    policy = make_untrained(chosen, output)
    parameters = sum(parameter.numel() for parameter in policy.model.parameters())
    say(f"{len(chosen):,} demonstrations, {parameters:,} parameters, {len(policy.tokenizer)} tokens")
    lessons = prepare(policy, chosen)
    start_from_white(policy, lessons)
    training = imitate(
        policy,
        lessons,
        parts=location_parts(),
        steps=steps,
        batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        seed=seed,
    )
    with Watched("imitating") as watched:
        for step in training:
            watched(step.step, steps)
            if step.step % 100 == 0:
                say(json.dumps(step._asdict()))
    # Half the size in the repository; policies are loaded in float32.
    torch.nn.Module.to(policy.model, torch.bfloat16)
    save_policy(policy.model, policy.tokenizer, output, pictures=policy.pictures)


if __name__ == "__main__":
    main()
