"""Prometheus: `http://127.0.0.1:PORT/metrics`, PORT being `observe.prometheus_port`.

`rollout/generate_seconds` becomes the summary `quartet_rollout_generate_seconds` (`_count` and `_sum` since the sink
began, for `rate()`) and the gauge `quartet_rollout_generate_seconds_last`, both with labels `run` and `role`.
"""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from quartet.config import Recipe
from quartet.errors import SetupError
from quartet.observe.follow import News
from quartet.observe.metrics import described
from quartet.observe.rollup import Rollup, merge

LOG = logging.getLogger(__name__)
HOST = "127.0.0.1"


class PrometheusSink(Collector):
    """Keeps one rollup per metric and role, and answers scrapes with them."""

    def __init__(self, recipe: Recipe, run_dir: Path) -> None:
        self._run, self._lock = recipe.name, threading.Lock()
        self._totals: dict[tuple[str, str], Rollup] = {}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(recipe.observe.prometheus_port, HOST, registry)
        except OSError as error:
            raise SetupError(
                f"the sink 'prometheus' cannot listen on {HOST}:{recipe.observe.prometheus_port}: {error.strerror}",
                "set observe.prometheus_port to a free port, or to 0",
            ) from error
        self.url = f"http://{HOST}:{self._server.server_port}/metrics"
        LOG.info("serving %s", self.url)

    def write(self, news: News) -> None:
        with self._lock:
            for sums in news.sums:
                merge(self._totals, {(name, sums.role): rollup for name, rollup in sums.slot.series.items()})

    def collect(self) -> Iterator[Family]:
        """Called by the server's thread at every scrape."""
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
