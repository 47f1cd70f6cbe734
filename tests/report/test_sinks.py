"""Each sink for real: what was recorded is found where people look for it, once."""

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from quartet.cli import cli
from quartet.config import Observe, Recipe
from quartet.errors import ConfigError, QuartetError, SetupError
from quartet.part import NoSettings
from quartet.recipe.file import to_toml
from quartet.registry import build, imported_plugins
from quartet.report.follow import News
from quartet.report.sink_process import chosen_sink, following
from quartet.report.sinks.base import Sink, check_package
from quartet.report.sinks.opentelemetry import OpenTelemetrySink
from quartet.report.sinks.prometheus import PrometheusSink
from quartet.report.sinks.tensorboard import TensorBoardSink
from quartet.runtime.check.recipe import check_recipe
from quartet.telemetry.spans import Span

NOON = 1_699_999_200.0


def with_sinks(recipe: Recipe, *sinks: str | dict[str, Any]) -> Recipe:
    return recipe.model_copy(update={"observe": Observe.model_validate({"sinks": list(sinks)})})


def show(run, name: str, sink: Sink) -> None:
    with following(run.folder, name) as followed:
        followed.show(sink)


def test_tensorboard_shows_means_at_their_train_step_once(run) -> None:
    run.go_on(40)
    for seconds in (0, 20):  # a second process goes on where the first one was
        run.go_on(seconds)
        sink = TensorBoardSink(NoSettings(), run.recipe, run.folder)
        with following(run.folder, "tensorboard") as followed:
            assert followed.show(sink) > 0
            assert followed.show(sink) == 0
        sink.close()
    events = EventAccumulator(str(run.folder / "tensorboard" / "trainer")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(n, 0.5) for n in range(1, 7)]
    rewards = EventAccumulator(str(run.folder / "tensorboard" / "worker")).Reload().Scalars("rollout/reward")
    assert [event.value for event in rewards] == [1.0] * 6
    assert [event.wall_time for event in rewards] == [run.clock.now - 60 + 10 * n for n in range(6)]


def test_a_sink_that_starts_again_goes_on_at_its_train_step(run) -> None:
    run.go_on(21)
    show(run, "tensorboard", TensorBoardSink(NoSettings(), run.recipe, run.folder))
    run.clock.now += 30  # in which no train step ends
    run.worker.metric("rollout", rollout_id=99, reward=1.0, generate_seconds=0.5)
    run.worker.flush()
    sink = TensorBoardSink(NoSettings(), run.recipe, run.folder)
    show(run, "tensorboard", sink)
    sink.close()
    events = EventAccumulator(str(run.folder / "tensorboard" / "worker")).Reload()
    assert [event.step for event in events.Scalars("rollout/reward")] == [1, 2, 2]


def test_read_positions_of_a_former_quartet_are_understood(run) -> None:
    run.go_on(25)
    show(run, "tensorboard", TensorBoardSink(NoSettings(), run.recipe, run.folder))
    file = run.folder / "sinks" / "tensorboard.json"
    file.write_text(json.dumps(json.loads(file.read_text())["places"]))
    with following(run.folder, "tensorboard") as followed:
        assert followed.show(TensorBoardSink(NoSettings(), run.recipe, run.folder)) == 0


def test_prometheus_answers_with_sums_and_last_values(run) -> None:
    recipe = with_sinks(run.recipe, {"name": "prometheus", "port": 0})
    sink = build(chosen_sink(recipe, "prometheus"), recipe, run.folder)
    run.go_on(31)
    show(run, "prometheus", sink)
    with urlopen(sink.url) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    samples = {sample.name: sample for sample in families["quartet_rollout_generate_seconds"].samples}
    assert samples["quartet_rollout_generate_seconds_count"].value == 30
    assert samples["quartet_rollout_generate_seconds_sum"].value == 15.0
    assert samples["quartet_rollout_generate_seconds_sum"].labels == {"run": recipe.name, "role": "worker"}
    assert families["quartet_train_step_last"].samples[0].value == 3
    sink.close()


def test_a_damaged_read_position_names_its_file(run) -> None:
    file = run.folder / "sinks" / "wandb.json"
    file.parent.mkdir()
    for damaged in ('{"places": {', "[]", '{"places": 7}'):
        file.write_text(damaged)
        with pytest.raises(SetupError, match=r"wandb\.json.* is damaged"), following(run.folder, "wandb"):
            pass


def test_a_second_sink_of_a_run_is_refused(run) -> None:
    with following(run.folder, "wandb"):
        with pytest.raises(SetupError, match=r"already sends .* to the sink 'wandb'"), following(run.folder, "wandb"):
            pass
        with following(run.folder, "tensorboard"):
            pass
    with following(run.folder, "wandb"):
        pass


def test_prometheus_without_follow_is_refused_and_nothing_counts_as_shown(run) -> None:
    run.go_on(31)
    refused = CliRunner().invoke(cli, ["sink", str(run.folder), "prometheus"])
    assert isinstance(refused.exception, ConfigError) and "--follow" in str(refused.exception)
    assert not (run.folder / "sinks" / "prometheus.json").exists()


def test_a_taken_port_is_named(run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = PrometheusSink.Settings(port=taken.getsockname()[1])
        with pytest.raises(SetupError, match="set its port"):
            PrometheusSink(settings, run.recipe, run.folder)


PLUGIN = """
from quartet.report.sinks.base import Sink
from quartet.registry import register

@register("sink", "counter")
class Counter(Sink):
    def __init__(self, settings, recipe, run_dir):
        super().__init__(settings, recipe, run_dir)
        self._file = run_dir / "counted"
    def write(self, news):
        self._file.write_text(str(len(news.spans)))
    def close(self):
        pass
"""


def test_a_sink_of_a_plugin_shows_a_run_that_is_over(run, tmp_path, monkeypatch) -> None:
    run.go_on(3)
    (tmp_path / "counting_sink.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("quartet.registry.registered", {})
    monkeypatch.setitem(imported_plugins, "counting_sink", None)  # removed after the test
    (run.folder / "config.toml").write_text(to_toml(run.recipe.model_copy(update={"plugins": ["counting_sink"]})))
    shown = CliRunner().invoke(cli, ["sink", str(run.folder), "counter"])
    assert shown.exception is None and (run.folder / "counted").read_text() == "6"


def test_opentelemetry_gets_one_trace_per_rollout(run) -> None:
    exporter = InMemorySpanExporter()
    run.go_on(3)
    show(run, "opentelemetry", OpenTelemetrySink(NoSettings(), run.recipe, run.folder, exporter))
    spans = exporter.get_finished_spans()
    assert sorted(span.name for span in spans) == ["generate"] * 3 + ["rollout"] * 3
    roots = {span.context.trace_id: span for span in spans if span.parent is None}
    assert len(roots) == 3
    for span in spans:
        if span.name == "generate":
            root = roots[span.context.trace_id]
            assert span.parent == root.context
            assert root.start_time <= span.start_time < span.end_time <= root.end_time
            assert span.end_time - span.start_time == pytest.approx(0.5e9, abs=1e3)
            assert span.attributes["quartet.lane"] == "session 0"
    again = InMemorySpanExporter()
    show(run, "a second one", OpenTelemetrySink(NoSettings(), run.recipe, run.folder, again))
    assert [span.context for span in again.get_finished_spans()] == [span.context for span in spans]


def test_pieces_of_a_span_have_ids_of_their_own_and_one_parent(run) -> None:
    exporter = InMemorySpanExporter()
    sink = OpenTelemetrySink(NoSettings(), run.recipe, run.folder, exporter)
    common = {"name": "rollout", "role": "worker", "lane": "session 0", "trace": "rollout 7.1"}
    sink.write(News([], [Span(start=NOON + n, seconds=30, continues=n < 60, **common) for n in (0, 30, 60)]))
    pieces = exporter.get_finished_spans()
    assert len({piece.context.span_id for piece in pieces}) == 3
    assert len({piece.context.trace_id for piece in pieces}) == 1
    last = pieces[-1]
    assert last.parent is None
    assert [piece.parent for piece in pieces[:-1]] == [last.context] * 2


@pytest.mark.parametrize(("trace", "name"), [("policy 3", "prove"), ("group 5", "judge"), ("", "wait")])
def test_spans_that_nothing_encloses_name_no_parent(run, trace: str, name: str) -> None:
    exporter = InMemorySpanExporter()
    sink = OpenTelemetrySink(NoSettings(), run.recipe, run.folder, exporter)
    sink.write(News([], [Span(start=NOON + n, seconds=1, name=name, role="engine", trace=trace) for n in range(2)]))
    first, second = exporter.get_finished_spans()
    assert first.parent is None and second.parent is None
    assert first.context.span_id != second.context.span_id
    assert (first.context.trace_id == second.context.trace_id) is bool(trace)


def test_a_collector_that_refuses_ends_the_sink_and_nothing_counts_as_shown(run) -> None:
    class Refuses(InMemorySpanExporter):
        def export(self, spans) -> SpanExportResult:
            return SpanExportResult.FAILURE

    run.go_on(3)
    with pytest.raises(QuartetError, match="rejected the spans"):
        show(run, "otel", OpenTelemetrySink(NoSettings(), run.recipe, run.folder, Refuses()))
    exporter = InMemorySpanExporter()
    show(run, "otel", OpenTelemetrySink(NoSettings(), run.recipe, run.folder, exporter))
    assert len(exporter.get_finished_spans()) == 6


def test_opentelemetry_rejects_an_unknown_exporter(run, monkeypatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    with pytest.raises(ConfigError, match="`otlp` or `console`"):
        OpenTelemetrySink(NoSettings(), run.recipe, run.folder)


@pytest.mark.slow
def test_wandb_offline_keeps_every_mean(run, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run.go_on(41)
    sink = build(chosen_sink(run.recipe, "wandb"), run.recipe, run.folder)
    show(run, "wandb", sink)
    sink.close()
    (file,) = run.folder.glob("wandb/offline-run-*/run-*.wandb")
    wait_for_end(file)
    history = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in wandb_records(file)
        if record.WhichOneof("record_type") == "history"
    ]
    rewards = [(row["newest_train_step"], row["rollout/reward"]) for row in history if "rollout/reward" in row]
    assert rewards == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)]
    assert sum("train/loss" in row for row in history) == 4


def wait_for_end(file: Path) -> None:
    """W&B's service answers `finish` before it has written the file's last record, the exit record."""
    deadline = time.monotonic() + 60
    while not any(record.WhichOneof("record_type") == "exit" for record in wandb_records(file)):
        assert time.monotonic() < deadline, f"{file} has no exit record"
        time.sleep(0.1)


def wandb_records(file: Path) -> Iterator[Any]:
    """What `wandb sync` reads: protobuf records in LevelDB's log format, after a head of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole, block, last = file.read_bytes(), 7, b"", 32_768, (1, 4)
    while place + 7 <= len(data):
        if (room := block - place % block) < 7:
            place += room
            continue
        size, kind = struct.unpack_from("<HB", data, place + 4)
        if place + 7 + size > len(data):
            return  # being written
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in last:
            yield Record.FromString(whole)
            whole = b""


def test_a_missing_package_is_named_before_anything_starts(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    recipe = with_sinks(run.recipe, "wandb")
    with pytest.raises(SetupError, match=r"pip install 'quartet-rl\[wandb\]'"):
        check_recipe(recipe)


class FromElsewhere(Sink):
    """Of an installed package: no extra of Quartet has its name."""

    package = "no_such_package.client"

    def __init__(self, settings: object, recipe: object, run_dir: object) -> None:
        raise NotImplementedError

    def write(self, news: object) -> None: ...

    def close(self) -> None: ...


def test_advice_for_a_plugin_sink_names_its_missing_package() -> None:
    with pytest.raises(SetupError, match="needs the package 'no_such_package'") as refused:
        check_package(f"{__name__}:FromElsewhere")
    assert refused.value.advice.startswith("pip install 'no_such_package'")


def test_an_unknown_sink_gets_a_hint(run) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"):
        chosen_sink(run.recipe, "tensorbord")
    refused = CliRunner().invoke(cli, ["sink", str(run.folder), "tensorbord"])
    assert "Did you mean 'tensorboard'" in str(refused.exception)
