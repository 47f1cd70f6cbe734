"""A stretch of a run as a trace and as a picture, by the command."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from matplotlib.image import imread

from quartet.cli import cli, trace
from quartet.errors import ConfigError
from quartet.report.chrome_trace import chrome_trace, row_order
from quartet.report.default_window import default_window
from quartet.report.timeline import working_seconds
from quartet.telemetry.record import Recorder
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import Span
from tests.report.conftest import NOON


def span(start: float, seconds: float, name: str, **fields) -> Span:
    return Span(start=start, seconds=seconds, name=name, role="worker", **fields)


def test_a_trace_holds_every_span_in_its_thread() -> None:
    spans = [
        span(100, 2, "rollout", lane="session 10", trace="rollout 1.1"),
        span(100.5, 1, "generate", lane="session 10", trace="rollout 1.1"),
        span(99, 5, "wait", reason="the engine"),
        Span(start=101, seconds=1, name="update", role="trainer", fields={"train_step": 3}),
    ]
    events = chrome_trace(spans, 100)["traceEvents"]
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    told = {
        (processes[event["pid"]], threads[event["pid"], event["tid"]], event["name"], event["ts"], event["dur"])
        for event in events
        if event["ph"] == "X"
    }
    assert told == {
        ("worker", "session 10", "rollout", 0, 2_000_000),
        ("worker", "session 10", "generate", 500_000, 1_000_000),
        ("worker", "module", "wait: the engine", -1_000_000, 5_000_000),
        ("trainer", "module", "update", 1_000_000, 1_000_000),
    }
    assert events[-1]["args"] == {"train_step": 3}


def test_rows_stand_as_data_flows() -> None:
    rows = [("worker", "session 10"), ("trainer", ""), ("worker", "session 2"), ("engine-1", ""), ("worker", "")]
    assert sorted(rows, key=row_order) == [
        ("worker", ""), ("worker", "session 2"), ("worker", "session 10"), ("engine-1", ""), ("trainer", ""),
    ]  # fmt: skip


def test_work_is_what_is_neither_waiting_nor_around_it() -> None:
    spans = [
        span(0, 100, "rollout"),
        span(5, 10, "generate"),
        span(12, 6, "step"),  # overlaps: counted once
        span(20, 70, "wait"),
        span(95, 50, "reset"),  # reaches over the end
    ]
    assert working_seconds(spans, 10, 100) == 8 + 5
    assert working_seconds([], 0, 10) == 0


def test_the_command_writes_a_trace_and_a_picture_of_several_runs(run, tmp_path: Path) -> None:
    run.go_on(90)
    run.close()
    trace, picture = tmp_path / "new" / "trace.json", tmp_path / "both.png"
    told = CliRunner().invoke(cli, ["trace", str(run.folder), "-o", str(trace), "--from", "10", "--json"])
    assert json.loads(told.output) == {"output": str(trace), "spans": 2 * 60, "truncated": False}
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert (min(event["ts"] for event in events), max(event["ts"] for event in events)) == (0, 59_250_000)
    told = CliRunner().invoke(cli, ["trace", str(run.folder), str(run.folder), "-o", str(picture)])
    assert told.exit_code == 0, told.output
    height, width, _ = imread(picture).shape
    assert width > 1500 and height > 200


def test_a_trace_says_that_it_lacks_spans(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_SPANS", 100)
    run.go_on(90)
    run.close()
    command = ["trace", str(run.folder), "-o", str(tmp_path / "trace.json")]
    assert json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)["truncated"]
    said = CliRunner().invoke(cli, command)
    assert said.stdout.startswith("100 spans in")
    assert "more than 100 spans" in said.stderr
    assert CliRunner().invoke(cli, [*command, "--seconds", "10"]).stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        "trace {run} -o x.json --from",
        "trace {run} -o x.json --seconds",
        "compare {run} --target",
        "report {run} --target",
        "env compare bandit bandit --tolerance",
    ],
)
def test_an_option_that_is_not_a_number_is_rejected(run, tmp_path: Path, monkeypatch, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    run.go_on(10)
    run.close()
    refused = CliRunner().invoke(cli, [*command.format(run=run.folder).split(), "nan"])
    assert refused.exit_code == 2 and "'nan' is not a number." in refused.stderr


@pytest.mark.parametrize("arguments", [["-o", "trace.txt"], ["{run}", "-o", "two.json"]])
def test_trace_of_an_impossible_output_is_rejected(run, arguments) -> None:
    given = [argument.format(run=run.folder) for argument in arguments]
    error = CliRunner().invoke(cli, ["trace", str(run.folder), *given]).exception
    assert isinstance(error, ConfigError) and "give one run for a .json file" in str(error)


@pytest.fixture
def trained(tmp_path: Path, clock) -> Path:
    """Recorded for 400 s; train steps of 10 s each end after 110, 120, ... 250 s."""
    worker = [span(clock.now + second, 1.0, "generate") for second in range(400)]
    steps = [Span(start=clock.now + 100 + 10 * step, seconds=10.0, name="train_step") for step in range(15)]
    with (
        Recorder(tmp_path / "run", "worker", clock=clock) as first,
        Recorder(tmp_path / "run", "trainer", clock=clock) as second,
    ):
        waits = Span(start=clock.now + 250, seconds=1.0, name="wait", reason="a batch")
        for one in sorted([*worker, *steps, waits], key=lambda one: one.end):
            clock.now = one.end
            (first if one.role == "worker" else second).finished(one)
    return tmp_path / "run"


def test_a_run_opens_on_the_last_minute_of_training(trained: Path) -> None:
    assert run_extent(trained) == pytest.approx((NOON, NOON + 400), abs=1e-3)
    assert default_window(trained, 60) == pytest.approx((NOON + 250 - 60, 60), abs=1e-3)
    assert default_window(trained, 1000) == pytest.approx((NOON, 250), abs=1e-3), "not on into what follows"
    shutil.rmtree(trained / "spans" / "trainer")
    assert default_window(trained, 60) == pytest.approx((NOON + 400 - 60, 60), abs=1e-3)  # no train step yet


def test_a_run_with_several_trainers_opens_on_the_last_step_of_any(trained: Path) -> None:
    (trained / "spans" / "trainer").rename(trained / "spans" / "trainer-even")
    with Recorder(trained, "trainer-odd") as other:
        other.finished(Span(start=NOON + 90, seconds=10.0, name="train_step"))
    assert default_window(trained, 60) == pytest.approx((NOON + 250 - 60, 60), abs=1e-3)


def test_a_stretch_that_was_not_recorded_is_refused_with_the_range_that_was(run, tmp_path: Path) -> None:
    run.go_on(90)
    run.close()
    error = (
        CliRunner().invoke(cli, ["trace", str(run.folder), "-o", str(tmp_path / "x.json"), "--from", "500"]).exception
    )
    assert isinstance(error, ConfigError) and re.search(r"recorded for (89|90)\.\d s", error.what)
    assert re.search(r"a number of seconds below (89|90)\.\d", error.advice)
    assert not (tmp_path / "x.json").exists()


def test_a_run_without_records_has_no_trace(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    error = CliRunner().invoke(cli, ["trace", str(tmp_path), "-o", "x.json"]).exception
    assert isinstance(error, ConfigError) and "has no records" in str(error)


def test_the_sink_command_shows_what_is_new(run) -> None:
    run.go_on(30)
    shown = [
        json.loads(CliRunner().invoke(cli, ["sink", str(run.folder), "tensorboard", "--json"]).output)["shown"]
        for _ in range(2)
    ]
    assert shown[0] > 0 and shown[1] == 0
