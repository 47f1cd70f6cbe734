"""`quartet plan`: expected rollouts per hour on given devices, the limit, and the best split of GPUs."""

import json
from pathlib import Path
from typing import Any

import click

from quartet.cli.parameters import JSON, RECIPE, SET
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say

POSITIVE = click.FloatRange(min=0, min_open=True)
SHARE = click.FloatRange(min=0, max=1, min_open=True)


@click.command(name="plan")
@RECIPE
@SET
@click.option("--gpus", type=click.IntRange(min=2), required=True, help="GPUs for engines and trainer together.")
@click.option("--desktops", type=click.IntRange(min=1), required=True, help="Concurrent environment sessions.")
@click.option("--gpu", default="H100", show_default=True, help="Kind of GPU: A100, H20, H100, H200 or H800.")
@click.option("--gpus-per-engine", type=click.IntRange(min=1), help="Default: the fewest that hold the weights.")
@click.option("--parameters", type=POSITIVE, help="Parameters of the model. Default: from its config.json.")
@click.option("--kv-bytes-per-token", type=POSITIVE, help="Keys and values of a token. Default: from its config.json.")
@click.option("--turns", type=POSITIVE, help="Mean turns per rollout. Default: rollout.max_turns.")
@click.option("--prompt-tokens", type=POSITIVE, help="Computed prompt tokens per turn. Default: the whole context.")
@click.option("--response-tokens", type=POSITIVE, help="Mean tokens per response. Default: rollout.max_tokens.")
@click.option("--context-tokens", type=POSITIVE, help="Mean context of a request. Default: engine.max_context_tokens.")
@click.option("--step-seconds", type=POSITIVE, default=3.0, show_default=True, help="Mean duration of a step.")
@click.option("--reset-seconds", type=POSITIVE, default=30.0, show_default=True, help="Mean duration of a reset.")
@click.option("--mfu", type=SHARE, default=0.3, show_default=True, help="Model FLOP utilisation of the trainer.")
@click.option("--kept-share", type=SHARE, default=1.0, show_default=True, help="Share of rollouts that filters keep.")
@click.option("--load-seconds", type=POSITIVE, default=10.0, show_default=True, help="Load of weights by an engine.")
@JSON
def command(recipe: Path, overrides: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Forecast the throughput of RECIPE on GPUs and desktops: rollouts per hour, limit, best split."""
    from quartet.forecast.of_recipe import Inputs, forecast
    from quartet.runtime.plan import plan

    loaded = load_recipe(recipe, list(overrides))
    result = forecast(loaded, Inputs(**given), plan(loaded)["max_rollouts_ahead"])
    if as_json:
        say(json.dumps(result))
        return
    best = result["best_split"]
    say(
        f"{result['rollouts_per_hour']:,.0f} rollouts/h, limited by: {result['limited_by']}\n"
        f"best split of {given['gpus']} GPUs ({given['gpu']}): {best['engines']} engines × "
        f"{best['gpus_per_engine']}, {best['trainer_gpus']} for the trainer\n"
        f"train step {result['train_step_seconds']:,.0f} s, trainer busy {result['trainer_utilisation']:.0%}; "
        f"{result['running_rollouts']:,.0f} rollouts run, {result['requests_per_engine']:.1f} requests per engine\n"
        "a cost model computed this, no measurement; --json lists its inputs"
    )
