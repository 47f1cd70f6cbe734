"""OpenTelemetry: every span of the run as an OTLP span, to OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318 unset).

A rollout, with what worker, engine and environment host did for it, is one trace, and so is a train step: its ids
follow from the run's folder and the span's `trace`, so that a sink that was started again goes on with the same traces.
A span that lasts is written in pieces, and each becomes a span of its own: of the one that encloses a trace, the last
piece is the trace's root, and the earlier ones are its children. A trace that nothing encloses (`policy 3`) has no
root. `OTEL_TRACES_EXPORTER=console` prints instead.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe
from quartet.report.follow import News
from quartet.report.sinks.base import Sink

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


class OpenTelemetrySink(Sink):
    """Every span of the run as an OTLP span, one trace per rollout and train step."""

    package = "opentelemetry.sdk"

    def __init__(self, knobs: Any, recipe: Recipe, run_dir: Path, exporter: "SpanExporter | None" = None) -> None:
        """Raises `ConfigError` when OTEL_TRACES_EXPORTER names something else than `otlp` or `console`."""
        from quartet.report.otlp import SpanExport

        super().__init__(knobs, recipe, run_dir)
        self._export = SpanExport(recipe.name, run_dir, exporter)

    def write(self, news: News) -> None:
        """Raises `QuartetError` when the collector does not take the spans."""
        if news.spans:
            self._export.export(news.spans)

    def close(self) -> None:
        self._export.close()
