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
    """Return the split with the highest rate; of equal ones that with the fewest engines. Raises `ConfigError`."""
    found = max(splits(run, gpus, gpus_per_engine), key=lambda split: split.rates.rollouts_per_second, default=None)
    if found is None:
        fewest = gpus_per_engine + max(run.trainer.fewest_gpus(run.model), 1)
        raise ConfigError(
            f"{gpus} GPUs hold neither an engine ({gpus_per_engine}) and a trainer beside it",
            f"give --gpus {fewest} or more, or another kind of GPU",
        )
    return found


def limit(run: Run, split: Split) -> str:
    """Return the resource of which 10 % more would raise the rate most: `desktops`, `admission`, `engines`,
    `trainer`."""
    grown: dict[str, Callable[[], Rates]] = {
        "desktops": lambda: _rates(replace(run, sessions=MORE * run.sessions), split),
        "admission": lambda: _rates(replace(run, rollouts_ahead=MORE * run.rollouts_ahead), split),
        "engines": lambda: _rates(replace(run, engine=_faster(run.engine)), split),
        "trainer": lambda: _rates(
            replace(run, trainer=replace(run.trainer, kind=_faster_kind(run.trainer.kind))), split
        ),
    }
    gains = {name: again().rollouts_per_second for name, again in grown.items()}
    return max(gains, key=lambda name: gains[name])


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
