"""Builds the starting policy of this recipe: `make policy`, or `python -m recipes.miniwob.make_policy`.

Scripted experts demonstrate 16 families in the browser; a tokenizer and an untrained model are made of the words of the
pages; supervised fine-tuning teaches the model to copy, for half an hour, and then to imitate a few demonstrations of
nine families. What comes out ships with the repository, so a training run needs none of this. The same demonstrations
give the same weights.
"""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import click

from quartet.env.miniwob.demonstrate import GROUPS, make_demonstrations, report, write_texts
from quartet.policy.make import make_policy
from quartet.recipe_file import load_recipe
from quartet.train.sft import SftStep, run_sft

HERE = Path(__file__).parent
DEMONSTRATION_SEEDS, TEXT_SEEDS = range(60), range(100)
VOCABULARY, MODEL_SEED = 2048, 2
PROGRESS_STEPS = 50


class Stage(NamedTuple):
    """One run of supervised fine-tuning; it starts from what the stage before left."""

    name: str
    copy_steps: int
    """A stage of copying ends with one step on demonstrations: there is no stage without any."""
    steps: int
    tokens_per_batch: int
    learning_rate: float
    seed: int


STAGES = (
    Stage("copy", copy_steps=1500, steps=1, tokens_per_batch=1536, learning_rate=2e-3, seed=2),
    Stage("copy-more", copy_steps=3000, steps=1, tokens_per_batch=1536, learning_rate=1e-3, seed=3),
    Stage("copy-finer", copy_steps=3000, steps=1, tokens_per_batch=2048, learning_rate=5e-4, seed=4),
    Stage("copy-finest", copy_steps=1500, steps=1, tokens_per_batch=2048, learning_rate=2e-4, seed=5),
    Stage("imitate", copy_steps=0, steps=500, tokens_per_batch=1024, learning_rate=6e-4, seed=0),
)
START_SEEDS = {
    "multi-orderings": 60,
    "choose-list": 60,
    "search-engine": 20,
    "form-sequence-2": 4,
    "email-inbox-reply": 8,
    "click-tab-2": 3,
    "login-user": 2,
    "enter-password": 2,
    "click-collapsible": 1,
}
"""Families that the policy imitates, and how many seeds of each. Few on purpose: reinforcement learning shall have
something to learn. More go to families in which one wrong word loses the episode: one that never succeeds has no
gradient."""


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=HERE / "policy", show_default=True)
@click.option("--reuse/--no-reuse", default=False, help="Take the demonstrations that are there instead of new ones.")
def main(output: Path, reuse: bool) -> None:
    """Demonstrate, make, fine-tune."""
    demonstrations, start, pages = HERE / "demonstrations.jsonl", HERE / "start.jsonl", HERE / "pages.jsonl"
    if not reuse:
        attempts = asyncio.run(make_demonstrations(GROUPS["demonstrated"], DEMONSTRATION_SEEDS, demonstrations))
        click.echo("\n".join(report(attempts)))
        asyncio.run(write_texts(GROUPS["all"], TEXT_SEEDS, pages))
    start.write_text("".join(line for line in demonstrations.open() if _starts(json.loads(line))))
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "new"
        new = make_policy(_words(demonstrations, pages), policy, vocab_size=VOCABULARY, seed=MODEL_SEED)
        parameters = sum(parameter.numel() for parameter in new.model.parameters())
        click.echo(f"{parameters:,} parameters, {len(new.tokenizer)} tokens")
        for stage in STAGES:
            last = stage is STAGES[-1]
            data, target = (start, output) if last else (demonstrations, Path(folder) / stage.name)
            policy = _run(stage, policy, target, data)


def _starts(demonstration: dict[str, Any]) -> bool:
    return demonstration["seed"] < START_SEEDS.get(demonstration["family"], 0)


def _run(stage: Stage, policy: Path, output: Path, data: Path) -> Path:
    knobs = {
        "model.path": json.dumps(str(policy)),
        "sft.output": json.dumps(str(output)),
        "sft.data": json.dumps(str(data)),
        "sft.copy_steps": stage.copy_steps,
        "sft.steps": stage.steps,
        "sft.tokens_per_batch": stage.tokens_per_batch,
        "sft.learning_rate": stage.learning_rate,
        "seed": stage.seed,
    }
    recipe = load_recipe(HERE / "recipe.toml", [f"{key}={value}" for key, value in knobs.items()])
    click.echo(json.dumps(run_sft(recipe, on_step=_show)))
    return output


def _words(demonstrations: Path, pages: Path) -> list[str]:
    """Everything the policy may read or say on training seeds: the tokenizer's corpus."""
    chats = [json.loads(line) for line in demonstrations.read_text().splitlines()]
    texts = [json.loads(line)["text"] for line in pages.read_text().splitlines()]
    return texts + [message["content"] for chat in chats for message in chat["messages"]]


def _show(step: SftStep) -> None:
    if step.step % PROGRESS_STEPS == 0:
        click.echo(
            f"{step.phase:14} {step.step:5}/{step.total_steps}  loss {step.loss:.3f}  accuracy {step.accuracy:.3f}  "
            f"{step.seconds:.0f} s"
        )


if __name__ == "__main__":
    main()
