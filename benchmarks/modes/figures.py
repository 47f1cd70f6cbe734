"""Figures of one run, from its metrics and from the processor time that the operating system counted."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from quartet.config import Recipe

Records = Sequence[dict[str, Any]]
TRAINER_SECONDS = ("claim_seconds", "pack_seconds", "old_logprobs_seconds", "update_seconds", "publish_seconds")


class CpuSample(Struct, frozen=True):
    """Processor seconds of the engine processes so far."""

    time: float
    """Time of the sample in Unix seconds."""
    seconds: float


class Figures(Struct, frozen=True, kw_only=True):
    """Figures of one run, from the end of its first train step to the end of its last."""

    actions_per_minute: float
    rollouts_per_second: float
    generated_tokens_per_second: float
    """Generated tokens per second; if generation and training alternate, only the time without training counts."""
    environment_utilisation: float
    """Share of time that sessions spent in resets and steps."""
    engine_utilisation: float
    """Processor seconds per second of an engine process."""
    trainer_utilisation: float
    """Share of time in which the trainer computed on a batch, without its waits for the files of a new policy."""
    seconds_to_train_steps: float
    """Seconds from the start of the first rollout to the end of the last train step."""
    lag_histogram: dict[str, int]
    length_ratio: float
    """Ratio of the mean response tokens of trained rollouts to those of all sampled rollouts."""


def figures(
    recipe: Recipe,
    rollouts: Records,
    steps: Records,
    cpu: Sequence[CpuSample],
    length_ratio: float,
    *,
    train_steps: int,
) -> Figures:
    """Return the figures, from records of the areas `rollout` and `train`.

    Raises `ValueError` for a run with fewer than `train_steps` train steps.
    """
    steps = steps[:train_steps]
    if len(steps) < train_steps:
        raise ValueError(f"a run ended after {len(steps)} train steps instead of {train_steps}")
    began, ended = steps[0]["time"], steps[-1]["time"]
    rollouts = [record for record in rollouts if record["status"] != "cancelled"]
    timed = [record for record in rollouts if began < record["time"] <= ended]
    seconds = ended - began
    busy = sum(record.get("reset_seconds", 0.0) + record.get("step_seconds", 0.0) for record in timed)
    training = sum(record.get(key, 0.0) for record in steps[1:] for key in TRAINER_SECONDS)
    alternates = recipe.admission.schedule == "batch_synchronous"
    generating = seconds - training if alternates else seconds
    lags: Counter[str] = Counter()
    for step in steps:
        lags.update(step["lag_histogram"])
    return Figures(
        actions_per_minute=60 * sum(record["turns"] for record in timed) / seconds,
        rollouts_per_second=len(timed) / seconds,
        generated_tokens_per_second=sum(record["response_tokens"] for record in timed) / generating,
        environment_utilisation=busy / (recipe.env.sessions * seconds),
        engine_utilisation=used(cpu, began, ended) / (len(recipe.engine_modules) * seconds),
        trainer_utilisation=training / seconds,
        seconds_to_train_steps=ended - min(record["time"] - record["wall_seconds"] for record in rollouts),
        lag_histogram=dict(sorted(lags.items())),
        length_ratio=length_ratio,
    )


def used(cpu: Sequence[CpuSample], began: float, ended: float) -> float:
    """Return the processor seconds between two times in Unix seconds, by linear interpolation between samples.

    Raises `ValueError` if there is no sample before or after one of them.
    """
    return _at(cpu, ended) - _at(cpu, began)


def _at(cpu: Sequence[CpuSample], moment: float) -> float:
    for before, after in pairwise(cpu):
        if before.time <= moment <= after.time:
            share = (moment - before.time) / (after.time - before.time)
            return before.seconds + share * (after.seconds - before.seconds)
    raise ValueError("the processor time was not sampled around that time")
