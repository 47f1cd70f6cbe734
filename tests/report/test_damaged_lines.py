"""Records with damaged lines: what is whole is read, the rest is counted, nothing fails."""

import json

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.report.default_window import default_window
from quartet.report.follow import Follower
from quartet.telemetry.line_decoder import LineDecoder
from quartet.telemetry.record import Recorder
from quartet.telemetry.records import read_records
from quartet.telemetry.series import read_series
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import Span, read_spans
from quartet.web.timeline import window

DAMAGED = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"start":1e999,"seconds":1,"name":"wait"}',
    b'{"start":1,"seconds":-1,"name":"wait"}',
    b'{"start":"x","seconds":1,"name":"wait"}',
    b'{"time":"x","area":"train","loss":1}',
    b'{"area":"train","loss":1}',
    b'{"time":null,"area":["train"],"area":"train"}',
    b'{"begin":1e400,"series":{}}',
    b'{"begin":1,"series":{"train/loss":[1]}}',
]


@pytest.fixture
def damaged_run(tmp_path):
    """A run with three records and three spans, damaged lines before, between and after them, and foreign files."""
    now = [1_790_000_000.0]
    with Recorder(tmp_path, "trainer", clock=lambda: now[0]) as recorder:
        for step in range(3):
            now[0] += 130
            recorder.metric("train", step=step, loss=0.5)
            recorder.finished(Span(start=now[0] - 5, seconds=4, name="train_step"))
    for path in tmp_path.rglob("*.jsonl"):
        path.write_bytes(b"\n".join([*DAMAGED, *path.read_bytes().splitlines(), *DAMAGED]) + b'\n{"torn":')
    for kind in ("metrics", "spans"):
        (tmp_path / kind / "notes.txt").write_text("mine")
        (tmp_path / kind / "trainer" / "1-x").mkdir()
        (tmp_path / kind / "trainer" / "1-x" / "mine.jsonl").write_text("{}\n")
        (tmp_path / kind / "trainer" / "0123-file").write_text("{}\n")
    return tmp_path


def test_complete_records_are_read(damaged_run):
    extent = run_extent(damaged_run)
    assert extent is not None
    assert [span.name for span in read_spans(damaged_run, 0, extent[1]).spans] == ["train_step"] * 3
    assert [record["step"] for record in read_records(damaged_run, "train")] == [0, 1, 2]
    (series,) = read_series(damaged_run, ["train/loss"]).series
    assert sum(point.count for point in series.points) == 3
    news = Follower(damaged_run).read()
    assert len(news.spans) == 3 and len(news.sums) == 3
    assert default_window(damaged_run, 60) is not None
    assert window(damaged_run, extent[0], 600)["rows"]


@pytest.mark.parametrize("name", ["trace.json", "trace.png"])
def test_a_trace_is_written_and_says_what_it_left_out(damaged_run, name):
    done = CliRunner().invoke(cli, ["trace", str(damaged_run), "--seconds", "600", "-o", str(damaged_run / name)])
    assert done.exit_code == 0, done.output
    assert "3 spans" in done.output and "damaged lines left out" in done.output


@pytest.mark.slow
def test_activities_and_lanes_that_no_quartet_declares_are_drawn(tmp_path):
    with Recorder(tmp_path, "trainer", clock=lambda: 1_790_000_000.0):
        pass
    folder = tmp_path / "spans" / "trainer" / "1790000000000-1"
    folder.mkdir(parents=True)
    lanes = ["session ²", "session " + "9" * 5000, "session \ud800".encode("utf-8", "surrogatepass").decode("latin-1")]
    lines = [json.dumps({"start": 1.79e9, "seconds": 1, "name": "fishing", "lane": lane}) for lane in lanes]
    (folder / "1789999980.jsonl").write_text("\n".join(lines) + "\n")
    for output in ("trace.json", "trace.png"):
        command = ["trace", str(tmp_path), "--from", "0", "--seconds", "60", "-o", str(tmp_path / output)]
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0 and "3 spans" in done.output, done.output
    assert len(window(tmp_path, 1.79e9 - 5, 60)["rows"]) == 3


def test_one_warning_for_all(caplog):
    decode = LineDecoder("the test", dict)
    assert list(decode([b"{}", b"{", b"[", b"{}"])) == [{}, {}]
    assert decode.damaged == 2 and len(caplog.records) == 1
