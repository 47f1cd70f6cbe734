"""`quartet sft`: supervised fine-tuning on exercises and chat-format demonstrations."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RECIPE, SET
from quartet.terminal.say import say


@click.command(name="sft")
@RECIPE
@SET
@JSON
def command(recipe: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Fine-tune `model.path` on `sft.data` and write the policy to `sft.output`."""
    from quartet.recipe.file import load_recipe
    from quartet.report.show import counted
    from quartet.terminal.progress import Watched
    from quartet.train.sft import run_sft
    from quartet.train.sft_output import replaces_policy
    from quartet.train.sft_progress import step_watcher

    resolved = load_recipe(recipe, list(overrides))
    if resolved.lora.rank:
        say("note: fine-tuning trains all weights; lora.rank is for `quartet train`", err=True)
    if replaces_policy(resolved):
        say(f"note: replaces the policy in {resolved.sft.output}", err=True)
    with Watched("fine-tuning", quiet=as_json) as watched:
        summary = run_sft(resolved, on_step=step_watcher(watched, resolved.sft))
    if as_json:
        say(json.dumps(summary))
        return
    say(
        f"wrote {summary['output']}\n"
        f"{counted(summary['exercise_steps'], 'step')} on exercises and {summary['demonstration_steps']:,} on "
        f"demonstrations in {summary['train_seconds']:.0f} s, ended by {summary['stopped_by']}; "
        f"loss {summary['loss']:.3f}, accuracy {summary['accuracy']:.3f}"
    )
