"""Builds the starting policy of this recipe: `make policy`, or `python -m recipes.miniwob.make_policy`.

Three stages: scripted experts demonstrate the 16 demonstrated families in the browser; a tokenizer and an untrained
model are made from the pages' words; `quartet sft` teaches the model to copy and then, stopped early, to imitate. What
comes out ships with the repository, so a training run needs none of this.
"""

import asyncio
import json
import tempfile
from pathlib import Path

import click

from quartet.config import load_recipe
from quartet.env.miniwob.demonstrate import GROUPS, make_demonstrations, report, write_texts
from quartet.policy.make import make_policy
from quartet.train.sft import SftStep, run_sft

HERE = Path(__file__).parent
DEMONSTRATION_SEEDS, TEXT_SEEDS = range(60), range(100)
VOCABULARY = 2048
PROGRESS_STEPS = 50


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=HERE / "policy", show_default=True)
@click.option("--reuse/--no-reuse", default=False, help="Take the demonstrations that are there instead of new ones.")
@click.option("--copy-steps", default=1000, show_default=True)
@click.option("--steps", default=150, show_default=True, help="Demonstration steps: few, to leave much to learn.")
@click.option("--seed", default=0, show_default=True)
def main(output: Path, reuse: bool, copy_steps: int, steps: int, seed: int) -> None:
    """Demonstrate, make, fine-tune."""
    demonstrations, texts = HERE / "demonstrations.jsonl", HERE / "pages.jsonl"
    if not reuse:
        attempts = asyncio.run(make_demonstrations(GROUPS["demonstrated"], DEMONSTRATION_SEEDS, demonstrations))
        click.echo("\n".join(report(attempts)))
        asyncio.run(write_texts(GROUPS["all"], TEXT_SEEDS, texts))
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(_words(demonstrations, texts), Path(folder) / "new", vocab_size=VOCABULARY, seed=seed)
        parameters = sum(parameter.numel() for parameter in policy.model.parameters())
        click.echo(f"{parameters:,} parameters, {len(policy.tokenizer)} tokens")
        recipe = load_recipe(
            HERE / "recipe.toml",
            [
                f'model.path="{folder}/new"',
                f'sft.output="{output}"',
                f'sft.data="{demonstrations}"',
                f"sft.copy_steps={copy_steps}",
                f"sft.steps={steps}",
                f"seed={seed}",
            ],
        )
        summary = run_sft(recipe, on_step=_show)
    click.echo(json.dumps(summary))


def _words(demonstrations: Path, texts: Path) -> list[str]:
    """Everything the policy may read or say on training seeds: the tokenizer's corpus."""
    chats = [json.loads(line) for line in demonstrations.read_text().splitlines()]
    pages = [json.loads(line)["text"] for line in texts.read_text().splitlines()]
    return pages + [message["content"] for chat in chats for message in chat["messages"]]


def _show(step: SftStep) -> None:
    if step.step % PROGRESS_STEPS == 0:
        click.echo(
            f"{step.phase:14} {step.step:5}/{step.total_steps}  loss {step.loss:.3f}  accuracy {step.accuracy:.3f}  "
            f"{step.seconds:.0f} s"
        )


if __name__ == "__main__":
    main()
