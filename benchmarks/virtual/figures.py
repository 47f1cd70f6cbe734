"""Figures of a simulation between two train steps.

They are those of a steady state only if as many turns are generated as trained, dropped ones aside: in a short window a
backlog from before it may be trained.
"""

import tempfile
from pathlib import Path

from msgspec import Struct

from benchmarks.virtual.check import check
from benchmarks.virtual.scenario import Scenario
from benchmarks.virtual.simulation import Simulation, Totals


class Figures(Struct, frozen=True, kw_only=True):
    """Rates and shares over the measured train steps."""

    actions_per_minute: float
    """Turns of finished rollouts."""
    trained_actions_per_minute: float
    environment_utilisation: float
    """Share of time in which sessions run a rollout: what an environment cluster reports as in use."""
    environment_busy: float
    """Share of time in which sessions reset or step."""
    environment_started: float
    """Share of time in which sessions run a rollout that has been reset; rollouts count when they end."""
    engine_utilisation: float
    """Share of time in which engines compute: what a GPU reports as its utilisation."""
    engine_compute: float
    """Share of time in which engines would compute if nothing but their matrix products took time."""
    requests_per_engine: float
    generated_tokens_per_second: float
    trainer_utilisation: float
    train_step_period_seconds: float
    """Time between two commits."""
    rollouts_per_hour: float
    mean_lag: float
    tick_milliseconds: float
    """Median processor time of the data manager's rounds."""


def simulate(scenario: Scenario, *, warm_steps: int, train_steps: int, folder: Path | None = None) -> Figures:
    """Return the figures of `train_steps` train steps after `warm_steps`. `folder` is where the ledger's folder is
    made. Raises `AssertionError` if the run lost a rollout or trained one twice, see `check`."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        simulation = Simulation(scenario, Path(place) / "run")
        try:
            before = simulation.run(lambda: simulation.train_steps >= warm_steps)
            earlier = simulation.lags
            after = simulation.run(lambda: simulation.train_steps >= warm_steps + train_steps)
            check(simulation)
            lags = simulation.lags
            mean_lag = (sum(lags) - sum(earlier)) / max(len(lags) - len(earlier), 1)
            return figures(scenario, before, after, mean_lag, simulation.tick_milliseconds())
        finally:
            simulation.close()


def figures(scenario: Scenario, before: Totals, after: Totals, mean_lag: float, tick_milliseconds: float) -> Figures:
    """Return the figures between two moments."""
    seconds = after.seconds - before.seconds
    engines = sum(group.count for group in scenario.engines)

    def per_second(name: str) -> float:
        return (getattr(after, name) - getattr(before, name)) / seconds

    return Figures(
        actions_per_minute=60 * per_second("actions"),
        trained_actions_per_minute=60 * per_second("trained_actions"),
        environment_utilisation=per_second("occupied_seconds") / scenario.sessions,
        environment_busy=per_second("environment_seconds") / scenario.sessions,
        environment_started=per_second("started_seconds") / scenario.sessions,
        engine_utilisation=per_second("engine_busy_seconds") / engines,
        engine_compute=per_second("engine_compute_seconds") / engines,
        requests_per_engine=per_second("engine_request_seconds") / engines,
        generated_tokens_per_second=per_second("generated_tokens"),
        trainer_utilisation=per_second("trainer_seconds"),
        train_step_period_seconds=1 / per_second("train_steps"),
        rollouts_per_hour=3600 * per_second("finished"),
        mean_lag=mean_lag,
        tick_milliseconds=tick_milliseconds,
    )
