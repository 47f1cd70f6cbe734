"""Forecast of a recipe on given devices."""

from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from quartet.config import Recipe, Train
from quartet.errors import ConfigError
from quartet.forecast.engine_cost import engine_cost, fewest_gpus
from quartet.forecast.gpus import GPUS
from quartet.forecast.model_size import ModelSize, read_model_size
from quartet.forecast.split import best_split, enough_gpus, limit
from quartet.forecast.throughput import Run
from quartet.forecast.trainer_cost import Trainer, passes_of
from quartet.forecast.workload import Workload
from quartet.registry import find


class Inputs(Struct, frozen=True, kw_only=True):
    """Devices that the user has, and facts about the run that a recipe does not tell. None stands for a value that
    follows from the recipe."""

    gpus: int
    """GPUs for engines and trainer together."""
    desktops: int
    """Concurrent environment sessions."""
    gpu: str
    """Kind of GPU, one of `GPUS`."""
    gpus_per_engine: int | None = None
    parameters: float | None = None
    kv_bytes_per_token: float | None = None
    turns: float | None = None
    prompt_tokens: float | None = None
    """Computed prompt tokens per turn."""
    response_tokens: float | None = None
    """Tokens per response."""
    context_tokens: float | None = None
    """Tokens of prompt and response that a request holds."""
    step_seconds: float
    reset_seconds: float
    trainer_efficiency: float
    kept_share: float
    load_seconds: float


def forecast(recipe: Recipe, inputs: Inputs, rollouts_ahead: int) -> dict[str, Any]:
    """Return the forecast with all numbers that it used. `rollouts_ahead` is admission's limit of the recipe."""
    run, gpus_per_engine = run_of(recipe, inputs, rollouts_ahead)
    best = best_split(run, inputs.gpus, gpus_per_engine)
    limited_by, gain = limit(run, best)
    return {
        "rollouts_per_hour": 3600 * best.rates.rollouts_per_second,
        "limited_by": limited_by,
        "rate_with_10_percent_more": gain,
        "best_split": {
            "engines": best.engines,
            "gpus_per_engine": gpus_per_engine,
            "engine_gpus": best.engines * gpus_per_engine,
            "trainer_gpus": best.trainer_gpus,
        },
        "enough_gpus": enough_gpus(run, best, gpus_per_engine),
        "running_rollouts": best.rates.running,
        "requests_per_engine": best.rates.requests_per_engine,
        "train_step_seconds": best.rates.train_step_seconds,
        "trainer_utilisation": best.rates.trainer_utilisation,
        "inputs": asdict(run.workload)
        | asdict(run.model)
        | {
            "gpus": inputs.gpus,
            "desktops": inputs.desktops,
            "gpu": inputs.gpu,
            "trainer_efficiency": inputs.trainer_efficiency,
            "kept_share": inputs.kept_share,
            "load_seconds": inputs.load_seconds,
            "gpus_per_engine": gpus_per_engine,
            "slots_per_engine": run.engine.slots,
            "rollouts_per_batch": run.rollouts_per_batch,
            "rollouts_ahead": run.rollouts_ahead,
            "passes_per_trained_token": run.trainer.passes,
        },
    }


def run_of(recipe: Recipe, inputs: Inputs, rollouts_ahead: int) -> tuple[Run, int]:
    """Return what is fixed for all splits, and the number of GPUs per engine."""
    kind, model, workload = GPUS[inputs.gpu], model_of(recipe, inputs), workload_of(recipe, inputs)
    gpus_per_engine = inputs.gpus_per_engine or fewest_gpus(kind, model)
    needs = _passes_before_the_update(recipe)
    passes = passes_of(
        optimizer_epochs=recipe.train.epochs,
        activation_checkpointing=recipe.train.activation_checkpointing,
        further=len(needs) + _scored_before_the_update(recipe.train),
    )
    run = Run(
        model=model,
        workload=workload,
        engine=engine_cost(kind, gpus_per_engine, model, workload),
        trainer=Trainer(
            kind=kind,
            trainer_efficiency=inputs.trainer_efficiency,
            passes=passes,
            frozen_policies=len(needs & {"reference", "teacher"}),
        ),
        sessions=inputs.desktops,
        rollouts_per_batch=recipe.rollouts_per_batch,
        rollouts_ahead=rollouts_ahead,
        kept_share=inputs.kept_share,
        schedule=recipe.admission.schedule,
        load_seconds=inputs.load_seconds,
    )
    return run, gpus_per_engine


def model_of(recipe: Recipe, inputs: Inputs) -> ModelSize:
    """Return the size of the first trained policy, from the inputs or else from its folder."""
    parameters, kv_bytes = inputs.parameters, inputs.kv_bytes_per_token
    if parameters is None or kv_bytes is None:
        found = read_model_size(Path(recipe.policy_sources[recipe.trained_policies[0]].source))
        parameters, kv_bytes = parameters or found.parameters, kv_bytes or found.kv_bytes_per_token
    return ModelSize(parameters=parameters, kv_bytes_per_token=kv_bytes)


def workload_of(recipe: Recipe, inputs: Inputs) -> Workload:
    """Return the workload. A value that the inputs lack is the recipe's limit, so that the forecast is pessimistic.

    Raises `ConfigError` if prompt and response are longer than the context.
    """
    context = inputs.context_tokens or recipe.engine.max_context_tokens
    response = inputs.response_tokens or min(recipe.rollout.max_tokens, context)
    prompt = inputs.prompt_tokens or max(context - response, 1)
    if max(prompt, response) > context:
        raise ConfigError(
            f"a prompt of {prompt:,.0f} and a response of {response:,.0f} tokens do not fit a context of "
            f"{context:,.0f} tokens",
            "raise --context-tokens, or lower --prompt-tokens or --response-tokens",
        )
    return Workload(
        turns=inputs.turns or recipe.rollout.max_turns,
        prompt_tokens_per_turn=prompt,
        response_tokens_per_turn=response,
        context_tokens=context,
        step_seconds=inputs.step_seconds,
        reset_seconds=inputs.reset_seconds,
    )


def _passes_before_the_update(recipe: Recipe) -> set[str]:
    """Return the names of the forward passes for the credit, and `reference` if a loss term needs it."""
    credit: Any = find(recipe.credit.kind, recipe.credit.name)
    terms: list[Any] = [find(term.kind, term.name) for term in recipe.loss.terms]
    return {*credit.needs} | ({"reference"} & {need for term in terms for need in term.needs})


def _scored_before_the_update(train: Train) -> float:
    """Return the share of the tokens whose old log-probs need a pass of their own: with one epoch, those of the first
    minibatch are computed by its update."""
    return 1.0 if train.epochs > 1 else 1 - 1 / train.minibatches
