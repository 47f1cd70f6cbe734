"""Sinks: where a run is shown besides its own folder. Each follows the run's files, in a process of its own.

A sink can be slow, wrong or missing without the run noticing: it is started again a few times and then given up, which
the log and the ledger's events tell.
"""

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from quartet.errors import SetupError
from quartet.registry import lookup

if TYPE_CHECKING:  # the command line reads the names below, and only these
    from quartet.observe.sinks.base import Sink


class SinkEntry(NamedTuple):
    """Where a sink is, and what it needs."""

    path: str
    """`module:class`, imported only in the sink's process."""
    package: str
    """What must be importable, from the extra of the sink's name."""
    serves: bool = False
    """It answers who asks, as long as it runs; the others put what they are given somewhere where it stays."""


SINKS = {
    "tensorboard": SinkEntry("quartet.observe.sinks.tensorboard:TensorBoardSink", "tensorboard"),
    "wandb": SinkEntry("quartet.observe.sinks.wandb:WandbSink", "wandb"),
    "prometheus": SinkEntry("quartet.observe.sinks.prometheus:PrometheusSink", "prometheus_client", serves=True),
    "opentelemetry": SinkEntry("quartet.observe.sinks.opentelemetry:OpenTelemetrySink", "opentelemetry.sdk"),
}


def check_sinks(names: list[str]) -> None:
    """Can they all be imported? Raises `ConfigError` for an unknown name, `SetupError` that names the missing extra."""
    for name in names:
        package = lookup("sink", name, SINKS).package
        if find_spec(package.partition(".")[0]) is None or find_spec(package) is None:
            raise SetupError(
                f"the sink {name!r} needs the package {package.partition('.')[0]!r}, which is not installed",
                f"pip install 'quartet-rl[{name}]', or leave {name!r} out of observe.sinks",
            )


def sink_class(name: str) -> "type[Sink]":
    """The class behind a name. Raises `ConfigError` or `SetupError`."""
    check_sinks([name])
    module, _, class_name = SINKS[name].path.partition(":")
    return getattr(importlib.import_module(module), class_name)
