"""Throughput of a run on one split of its devices, bounded by sessions, engines, admission and trainer."""

from collections.abc import Callable

from msgspec import Struct

from quartet.forecast.engine_cost import EngineCost
from quartet.forecast.model_size import ModelSize
from quartet.forecast.sessions import batch_of, turns_per_second
from quartet.forecast.trainer_cost import Trainer
from quartet.forecast.workload import Workload

_BISECTIONS = 60


class Run(Struct, frozen=True, kw_only=True):
    """The values of a run that are the same for every split of the GPUs."""

    model: ModelSize
    workload: Workload
    engine: EngineCost
    trainer: Trainer
    sessions: float
    rollouts_per_batch: float
    rollouts_ahead: float
    """Maximum number of admitted, untrained rollouts."""
    kept_share: float
    """Share of finished rollouts that the filters keep."""
    schedule: str
    """Name of the schedule (`quartet/manager/schedule.py`)."""
    load_seconds: float
    """Time in which an engine loads new weights, once per train step, and answers nothing."""


class Rates(Struct, frozen=True, kw_only=True):
    """Steady state of a run on one split."""

    rollouts_per_second: float
    """Finished rollouts, dropped ones included."""
    running: float
    """Mean number of running rollouts; with a schedule of whole batches, during generation."""
    requests_per_engine: float
    train_step_seconds: float
    trainer_utilisation: float


def rates(run: Run, engines: int, trainer_gpus: int) -> Rates:
    """Return the steady state with these engines and trainer GPUs."""
    step_seconds = run.trainer.step_seconds(
        trainer_gpus, run.model, run.rollouts_per_batch * run.workload.trained_tokens
    )
    rollouts_per_second = _RATES.get(run.schedule, _concurrent)(run, engines, step_seconds)
    steps_per_second = rollouts_per_second * run.kept_share / run.rollouts_per_batch
    if run.schedule in _RATES:
        running = min(run.sessions, _generating(run))
    else:
        running = _running(run, engines, rollouts_per_second)
    return Rates(
        rollouts_per_second=rollouts_per_second,
        running=running,
        requests_per_engine=batch_of(running, engines, run.engine, run.workload),
        train_step_seconds=step_seconds,
        trainer_utilisation=steps_per_second * step_seconds,
    )


def _running(run: Run, engines: int, rollouts_per_second: float) -> float:
    """Return the number of running rollouts that generate at this rate. It is lower than the number of sessions if the
    trainer or admission holds rollouts back."""
    serving = _serving(run, rollouts_per_second)
    low, high = 0.0, min(run.sessions, run.rollouts_ahead)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        enough = serving * _generated(run, middle, engines) >= rollouts_per_second
        low, high = (low, middle) if enough else (middle, high)
    return high


def _serving(run: Run, rollouts_per_second: float) -> float:
    """Return the share of time in which an engine does not load weights."""
    steps_per_second = rollouts_per_second * run.kept_share / run.rollouts_per_batch
    return max(1 - run.load_seconds * steps_per_second, 0.0)


def _may_run(run: Run, rollouts_per_second: float, step_seconds: float) -> float:
    """Return the number of rollouts that admission lets run at this rate.

    By Little's law, the slots of rate x train step belong to the batch in training. Finished groups wait for their
    batch to fill, half a batch on average.
    """
    kept_per_second = rollouts_per_second * run.kept_share
    return max(run.rollouts_ahead - run.rollouts_per_batch / 2 - kept_per_second * step_seconds, 0.0)


def _generated(run: Run, running: float, engines: int) -> float:
    return turns_per_second(min(running, run.sessions), engines, run.engine, run.workload) / run.workload.turns


def _generating(run: Run) -> float:
    """Return the number of rollouts of the batch in generation, with a schedule of whole batches."""
    return run.rollouts_ahead - (run.rollouts_per_batch if run.schedule == "one_step_off" else 0)


def _alternating(run: Run, engines: int, step_seconds: float) -> float:
    """Return the rate if a batch is generated, then trained. The slowest rollouts of a batch are neglected."""
    finished = run.rollouts_per_batch / run.kept_share
    generation_seconds = finished / _generated(run, _generating(run), engines)
    return finished / (generation_seconds + step_seconds + run.load_seconds)


def _one_step_off(run: Run, engines: int, step_seconds: float) -> float:
    """Return the rate if a batch is generated while the one before it is trained, and weights change between them."""
    finished = run.rollouts_per_batch / run.kept_share
    generation_seconds = finished / _generated(run, _generating(run), engines)
    return finished / (max(generation_seconds, step_seconds) + run.load_seconds)


def _concurrent(run: Run, engines: int, step_seconds: float) -> float:
    """Return the largest rate that neither engines, sessions and admission nor the trainer refuse."""
    finished_per_step = run.rollouts_per_batch / run.kept_share
    low, high = 0.0, finished_per_step / step_seconds
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        possible = _serving(run, middle) * _generated(run, _may_run(run, middle, step_seconds), engines)
        low, high = (middle, high) if middle <= possible else (low, middle)
    return low


_RATES: dict[str, Callable[[Run, int, float], float]] = {
    "batch_synchronous": _alternating,
    "one_step_off": _one_step_off,
}
"""Rate with each schedule of whole batches; with the others, generation and training are concurrent."""
