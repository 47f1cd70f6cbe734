"""`quartet sft`: supervised fine-tuning on copying exercises and chat-format demonstrations."""

import json
from pathlib import Path

import click


@click.command(name="sft")
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Override one knob; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object, and nothing else.")
def command(recipe: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Fine-tune `model.path` on `sft.data` and write the policy to `sft.output`."""
    from quartet.recipe_file import load_recipe
    from quartet.train.sft import run_sft

    summary = run_sft(load_recipe(recipe, list(overrides)))
    click.echo(json.dumps(summary) if as_json else f"wrote {summary['output']}: {json.dumps(summary)}")
