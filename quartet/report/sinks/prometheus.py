"""Prometheus sink: serve the run's metrics at `http://127.0.0.1:PORT/metrics`; the setting `port` gives PORT.

`rollout/generate_seconds`, for example, becomes two Prometheus metrics with the labels `run` and `role`: the summary
`quartet_rollout_generate_seconds` (`_count` and `_sum` since the sink's start, for `rate()`) and the gauge
`quartet_rollout_generate_seconds_last`.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from quartet.config import Recipe, Section
from quartet.errors import SetupError
from quartet.report.follow import News
from quartet.report.sinks.base import Sink
from quartet.telemetry.metrics import described
from quartet.telemetry.rollup import Rollup, merge

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"


class PrometheusSink(Sink):
    """Server of counts, sums and last values, which Prometheus can scrape while the run is live."""

    class Settings(Section):
        port: Annotated[int, Field(ge=0, le=65535)] = 9464
        """Port on 127.0.0.1; 0 picks a free port, which is logged."""

    settings: Settings
    package = "prometheus_client"
    serves = True

    def __init__(self, settings: Settings, recipe: Recipe, run_dir: Path) -> None:
        """Start the server. Raise `SetupError` if the port is taken."""
        from prometheus_client import CollectorRegistry, start_http_server

        super().__init__(settings, recipe, run_dir)
        self._run, self._lock = recipe.name, threading.Lock()
        self._totals: dict[tuple[str, str], Rollup] = {}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)  # pyright: ignore[reportArgumentType]  (its `Collector` has `collect` alone)
        try:
            self._server, self._thread = start_http_server(settings.port, HOST, registry)
        except OSError as error:
            raise SetupError(
                f"the sink 'prometheus' cannot listen on {HOST}:{settings.port}: {error.strerror}",
                "set its port to a free port from 1024 on, or to 0 for any free port",
            ) from error
        self.url = f"http://{HOST}:{self._server.server_port}/metrics"
        LOG.info("serving %s", self.url)

    def write(self, news: News) -> None:
        with self._lock:
            for sums in news.sums:
                merge(self._totals, {(name, sums.role): rollup for name, rollup in sums.slot.series.items()})

    def collect(self) -> "Iterator[Family]":
        """Yield all metrics; the server's thread calls this at every scrape."""
        from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily

        with self._lock:
            totals = sorted(self._totals.items())
        for name in sorted({name for (name, _), _ in totals}):
            flat, metric = f"quartet_{name.replace('/', '_')}", described(name)
            summary = SummaryMetricFamily(flat, metric.meaning, labels=["run", "role"])
            last = GaugeMetricFamily(f"{flat}_last", metric.meaning, labels=["run", "role"])
            for (other, role), rollup in totals:
                if other == name:
                    summary.add_metric([self._run, role], count_value=rollup.count, sum_value=rollup.sum)
                    last.add_metric([self._run, role], rollup.last)
            yield summary
            yield last

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
