"""How well does a policy copy? Share of greedy answers that are entirely right, on copying exercises of the last level.

    python -m benchmarks.copying recipes/miniwob/policy --json

Exercises are drawn with a seed that no training uses; every policy gets the same exercises.
"""

import json
from pathlib import Path

import click
import torch

from quartet.policy.examples import Example
from quartet.policy.load import load_policy
from recipes.miniwob.copying import LEVELS, PAGE_EXERCISES, CopyingExercises

SEED = 99


@click.command()
@click.argument("policies", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--exercises", default=60, show_default=True, help="Number of exercises of each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and nothing else.")
def main(policies: tuple[Path, ...], exercises: int, as_json: bool) -> None:
    """Compare POLICIES."""
    torch.set_num_threads(1)
    results = {str(path): measure(path, exercises) for path in policies}
    if as_json:
        click.echo(json.dumps(results))
        return
    for path, shares in results.items():
        click.echo(f"{path}: " + ", ".join(f"{kind} {share:.2f}" for kind, share in shares.items()))


def measure(path: Path, exercises: int) -> dict[str, float]:
    """Return the share of answers in which every token is the most likely one, by kind of exercise."""
    model, tokenizer, _ = load_policy(path)
    drawn = CopyingExercises(tokenizer, SEED)
    drawn.level = len(LEVELS) - 1
    return {
        kind: sum(_right(model, drawn.exercise(kind)) for _ in range(exercises)) / exercises
        for kind in dict.fromkeys(PAGE_EXERCISES)
    }


@torch.inference_mode()
def _right(model: torch.nn.Module, exercise: Example) -> bool:
    """Return whether every token of the answer is the most likely one; other trained tokens are not checked."""
    ids_L = torch.tensor(exercise.token_ids)
    answer_length = exercise.learned[::-1].index(False)
    ranked_L = model(input_ids=ids_L[None]).logits[0].argmax(-1)
    return bool((ranked_L[:-1] == ids_L[1:])[-answer_length:].all())


if __name__ == "__main__":
    main()
