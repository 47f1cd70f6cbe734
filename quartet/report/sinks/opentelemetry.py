"""OpenTelemetry sink: send each span to OTEL_EXPORTER_OTLP_ENDPOINT (default http://localhost:4318) over OTLP.

A rollout is one trace, with its spans in worker, engine and environment host. A train step is one trace, too. Ids are
derived from the run's folder and the span's `trace`, so that a restarted sink continues the same traces.

Quartet records a long span in pieces, each of which becomes a span here. If the span encloses a whole trace, its last
piece is the trace's root and the earlier pieces are children of the root. A trace without an enclosing span (`policy
3`) has no root. With `OTEL_TRACES_EXPORTER=console` the spans are printed instead.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from quartet.config import Recipe
from quartet.report.follow import News
from quartet.report.sinks.base import Sink

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


class OpenTelemetrySink(Sink):
    """Sender of the run's spans over OTLP, with one trace per rollout and per train step."""

    package = "opentelemetry.sdk"

    def __init__(self, settings: Any, recipe: Recipe, run_dir: Path, exporter: "SpanExporter | None" = None) -> None:
        """Make the sink. Raise `ConfigError` if OTEL_TRACES_EXPORTER is neither `otlp` nor `console`."""
        from quartet.report.otlp import SpanExport

        super().__init__(settings, recipe, run_dir)
        self._export = SpanExport(recipe.name, run_dir, exporter)

    def write(self, news: News) -> None:
        """Export the spans. Raise `QuartetError` if the collector rejects them."""
        if news.spans:
            self._export.export(news.spans)

    def close(self) -> None:
        self._export.close()
