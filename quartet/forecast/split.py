"""Best split of GPUs between engines and trainer, and the resource that limits it."""

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from quartet.errors import ConfigError
from quartet.forecast.engine_cost import EngineCost
from quartet.forecast.gpus import GpuKind
from quartet.forecast.throughput import Rates, Run, rates

MORE = 1.1
"""Factor on each resource in turn; the one that raises the rate most is the limit."""
NEARLY = 0.999
"""Share of the best rate from which a split counts as equally good, so that idle engines are not added."""
ENOUGH = 0.99
"""Share of the rate that fewer GPUs must still reach to be enough."""


class Split(Struct, frozen=True, kw_only=True):
    """One split with its steady state."""

    engines: int
    trainer_gpus: int
    rates: Rates


def splits(run: Run, gpus: int, gpus_per_engine: int) -> Iterator[Split]:
    """Yield every split with at least one engine and enough memory for the trainer; all other GPUs train."""
    for engines in range(1, gpus // gpus_per_engine + 1):
        trainer_gpus = gpus - engines * gpus_per_engine
        if trainer_gpus >= max(run.trainer.fewest_gpus(run.model), 1):
            yield Split(engines=engines, trainer_gpus=trainer_gpus, rates=rates(run, engines, trainer_gpus))


def best_split(run: Run, gpus: int, gpus_per_engine: int) -> Split:
    """Return the split with the fewest engines among those with `NEARLY` the highest rate.

    Raises `ConfigError` if the GPUs do not hold an engine and a trainer.
    """
    found = list(splits(run, gpus, gpus_per_engine))
    if not found:
        for_training = max(run.trainer.fewest_gpus(run.model), 1)
        raise ConfigError(
            f"{gpus} GPUs are too few: an engine needs {gpus_per_engine}, and the trainer's state {for_training}",
            f"give --gpus {gpus_per_engine + for_training} or more, or another kind of GPU",
        )
    highest = max(split.rates.rollouts_per_second for split in found)
    return next(split for split in found if split.rates.rollouts_per_second >= NEARLY * highest)


def enough_gpus(run: Run, split: Split, gpus_per_engine: int) -> int:
    """Return the number of GPUs with which the engines of the split and a smaller trainer reach `ENOUGH` of its
    rate."""
    low, high = max(run.trainer.fewest_gpus(run.model), 1), split.trainer_gpus
    while low < high:
        middle = (low + high) // 2
        enough = rates(run, split.engines, middle).rollouts_per_second >= ENOUGH * split.rates.rollouts_per_second
        low, high = (low, middle) if enough else (middle + 1, high)
    return split.engines * gpus_per_engine + low


def limit(run: Run, split: Split) -> tuple[str, float]:
    """Return the resource of which 10 % more would raise the rate most, and the factor by which it does: `desktops`,
    `admission`, `engines`, `trainer`, or `loading` of weights at 1.1 times the speed."""
    grown: dict[str, Callable[[], Rates]] = {
        "desktops": lambda: _rates(replace(run, sessions=MORE * run.sessions), split),
        "admission": lambda: _rates(replace(run, rollouts_ahead=MORE * run.rollouts_ahead), split),
        "engines": lambda: _rates(replace(run, engine=_faster(run.engine)), split),
        "trainer": lambda: _rates(
            replace(run, trainer=replace(run.trainer, kind=_faster_kind(run.trainer.kind))), split
        ),
        "loading": lambda: _rates(replace(run, load_seconds=run.load_seconds / MORE), split),
    }
    gains = {name: again().rollouts_per_second / split.rates.rollouts_per_second for name, again in grown.items()}
    most = max(gains, key=lambda name: gains[name])
    return most, gains[most]


def _rates(run: Run, split: Split) -> Rates:
    return rates(run, split.engines, split.trainer_gpus)


def _faster(engine: EngineCost) -> EngineCost:
    return replace(
        engine,
        weights_seconds=engine.weights_seconds / MORE,
        cache_seconds=engine.cache_seconds / MORE,
        product_seconds=engine.product_seconds / MORE,
        prefill_seconds=engine.prefill_seconds / MORE,
        slots=int(MORE * engine.slots),
    )


def _faster_kind(kind: GpuKind) -> GpuKind:
    return replace(kind, flops_per_second=MORE * kind.flops_per_second)
