"""`quartet plan`: expected rollouts per hour on given devices, the limit, and the best split of GPUs."""

import json
from pathlib import Path
from typing import Any

import click

from quartet.cli.parameters import JSON, RECIPE, SET, Amount
from quartet.forecast.gpus import GPUS
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say

COUNT = Amount(min=1, max=1e18)
SECONDS = Amount(min=0, max=1e9)
SHARE = Amount(min=1e-6, max=1)
MOST_GPUS = 4096
REMEDIES = {
    "desktops": "raise --desktops, or make steps and resets shorter",
    "admission": "raise train.groups_per_batch or admission.max_lag, which allow {rollouts_ahead:,} rollouts ahead of "
    "the trainer",
    "engines": "add GPUs, or make prompts and responses shorter",
    "trainer": "add GPUs, or train fewer tokens (train.epochs, turns, prompts)",
    "loading": "raise train.groups_per_batch, or load weights in less time",
}
"""Change to make for each limit."""
MEANS = ("turns", "prompt_tokens", "response_tokens", "context_tokens")
"""Options whose default is the recipe's limit."""


@click.command(name="plan")
@RECIPE
@SET
@click.option("--gpus", type=click.IntRange(2, MOST_GPUS), required=True, help="GPUs for engines and trainer together.")
@click.option("--desktops", type=click.IntRange(1, 10**9), required=True, help="Concurrent environment sessions.")
@click.option(
    "--gpu", type=click.Choice(list(GPUS), case_sensitive=False), default="H100", show_default=True, help="Kind of GPU."
)
@click.option("--gpus-per-engine", type=click.IntRange(min=1), help="Default: the fewest that hold the weights.")
@click.option("--parameters", type=COUNT, help="Parameters of the model. Default: from its config.json.")
@click.option("--kv-bytes-per-token", type=COUNT, help="Keys and values of a token. Default: from its config.json.")
@click.option("--turns", type=COUNT, help="Mean turns per rollout. Default: rollout.max_turns.")
@click.option("--prompt-tokens", type=COUNT, help="Computed prompt tokens per turn. Default: the whole context.")
@click.option("--response-tokens", type=COUNT, help="Mean tokens per response. Default: rollout.max_tokens.")
@click.option("--context-tokens", type=COUNT, help="Mean context of a request. Default: engine.max_context_tokens.")
@click.option("--step-seconds", type=SECONDS, default=3.0, show_default=True, help="Mean duration of a step.")
@click.option("--reset-seconds", type=SECONDS, default=30.0, show_default=True, help="Mean duration of a reset.")
@click.option(
    "--trainer-efficiency", type=SHARE, default=0.3, show_default=True, help="Trainer's share of the GPUs' peak."
)
@click.option("--kept-share", type=SHARE, default=1.0, show_default=True, help="Share of rollouts that filters keep.")
@click.option("--load-seconds", type=SECONDS, default=10.0, show_default=True, help="Load of weights by an engine.")
@JSON
def command(recipe: Path, overrides: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Forecast the throughput of RECIPE on GPUs and desktops: rollouts per hour, limit, best split."""
    from quartet.forecast.of_recipe import Inputs, forecast
    from quartet.runtime.plan import plan

    loaded = load_recipe(recipe, list(overrides))
    result = forecast(loaded, Inputs(**given), plan(loaded)["max_rollouts_ahead"])
    say(json.dumps(result) if as_json else summary(result, [name for name in MEANS if given[name] is None]))


def summary(result: dict[str, Any], limits: list[str]) -> str:
    """Return the forecast as text. `limits` names the means that were taken from the recipe's limits."""
    best, used, limit = result["best_split"], result["inputs"], result["limited_by"]
    engines = f"{best['engines']:,} engine{'s'[: best['engines'] > 1]} × {best['gpus_per_engine']}"
    lines = [
        f"{result['rollouts_per_hour']:,.0f} rollouts/h, limited by: {limit}, of which 10 % more give "
        f"{100 * (result['rate_with_10_percent_more'] - 1):.0f} % more",
        f"  -> {REMEDIES[limit].format(**used)}",
        f"best split of {used['gpus']:,} GPUs ({used['gpu']}): {engines}, {best['trainer_gpus']:,} for the trainer",
    ]
    if result["enough_gpus"] < used["gpus"]:
        lines.append(f"  -> {result['enough_gpus']:,} GPUs reach 99 % of this rate")
    lines.append(
        f"train step {result['train_step_seconds']:,.3g} s, trainer busy {100 * result['trainer_utilisation']:.0f} %; "
        f"{result['running_rollouts']:,.0f} rollouts run, {result['requests_per_engine']:.1f} requests per engine"
    )
    if limits:
        lines.append(
            f"assumed as long as the recipe allows: {used['turns']:g} turn{'s'[: used['turns'] > 1]}, per turn "
            f"{used['prompt_tokens_per_turn']:g} prompt tokens and {used['response_tokens_per_turn']:g} of response\n"
            f"  -> for a forecast that is not pessimistic, give the means: "
            f"{' '.join('--' + name.replace('_', '-') for name in limits)}"
        )
    lines.append(
        f"model of {used['parameters']:,.3g} parameters; a cost model computed this, no measurement; "
        "--json lists its inputs"
    )
    return "\n".join(lines)
