"""Export of a run's spans as OpenTelemetry spans. This module imports the OpenTelemetry SDK."""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from quartet.errors import ConfigError, QuartetError
from quartet.telemetry.activities import ACTIVITIES
from quartet.telemetry.spans import Span


class SpanExport:
    """Exporter of a run's spans, with the times recorded in the run."""

    def __init__(self, run_name: str, run_dir: Path, exporter: SpanExporter | None = None) -> None:
        """Make the exporter. Raise `ConfigError` if OTEL_TRACES_EXPORTER is neither `otlp` nor `console`."""
        self._key = str(run_dir.resolve())
        self._exporter = exporter or _exporter()
        self._resource = Resource.create({"service.name": "quartet", "quartet.run": run_name})

    def export(self, spans: Sequence[Span]) -> None:
        """Export spans. Raise `QuartetError` if the collector rejects them."""
        result = self._exporter.export([self._readable(span) for span in spans])
        if result is not SpanExportResult.SUCCESS:
            raise QuartetError("the OpenTelemetry collector rejected the spans", "check OTEL_EXPORTER_OTLP_ENDPOINT")

    def close(self) -> None:
        self._exporter.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        own = f"{span.role} {span.lane} {span.name} {span.start}"
        trace = span.trace or own
        encloser = span.trace.partition(" ")[0]
        has_root = encloser in ACTIVITIES and ACTIVITIES[encloser].encloses
        # A long span is written in pieces. Only the last piece lacks `continues`, so a trace has one root.
        is_root = has_root and span.name == encloser and not span.continues
        root = self._context(trace, trace)
        fields = {f"quartet.{name}": value for name, value in span.fields.items()}
        named = {"role": span.role, "lane": span.lane, "trace": span.trace, "reason": span.reason}
        return ReadableSpan(
            name=span.name,
            context=root if is_root else self._context(trace, own),
            parent=root if has_root and not is_root else None,
            resource=self._resource,
            attributes={f"quartet.{name}": value for name, value in named.items() if value} | fields,
            start_time=int(span.start * 1e9),
            end_time=int(span.end * 1e9),
        )

    def _context(self, trace: str, span: str) -> SpanContext:
        return SpanContext(
            trace_id=self._number(f"trace {trace}", 16),
            span_id=self._number(f"span {span}", 8),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
        )

    def _number(self, what: str, size: int) -> int:
        return int.from_bytes(hashlib.blake2b(f"{self._key} {what}".encode(), digest_size=size).digest())


def _exporter() -> SpanExporter:
    match os.environ.get("OTEL_TRACES_EXPORTER", "otlp"):
        case "console":
            return ConsoleSpanExporter(out=sys.stderr)
        case "otlp":
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case other:
            raise ConfigError(f"OTEL_TRACES_EXPORTER is {other!r}", "set it to `otlp` or `console`")
