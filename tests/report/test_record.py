"""What a module records comes back: whole, from the right window, and after any kill but for the last second."""

import errno
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quartet.errors import ConfigError, RecordsError
from quartet.telemetry.record import Recorder
from quartet.telemetry.records import read_records
from quartet.telemetry.series import read_series
from quartet.telemetry.slices import METRICS, SLICE_SECONDS, run_extent, writers
from quartet.telemetry.slots import read_slots
from quartet.telemetry.spans import PIECE_SECONDS, Span, read_spans
from tests.full_disk import max_file_size
from tests.waiting import wait_until

NOON = 1_699_999_200.0


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_records_lie_in_the_slice_of_their_time(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, "worker", clock=clock)
    for minute in range(5):
        clock.now = NOON + minute * SLICE_SECONDS + 1
        recorder.metric("rollout", rollout_id=minute, reward=float(minute))
    recorder.close()
    (writer,) = writers(tmp_path, METRICS)
    assert len(list(writer.folder.iterdir())) == 5
    window = read_records(tmp_path, "rollout", start=NOON + 61, end=NOON + 181)
    assert [record["rollout_id"] for record in window] == [1, 2]
    assert run_extent(tmp_path) == (NOON, math.nextafter(NOON + 4 * SLICE_SECONDS + 1, math.inf))


def test_time_never_goes_back(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, "worker", clock=clock)
    for now in (NOON + 9, NOON - 500, NOON + 10):
        clock.now = now
        recorder.metric("rollout", reward=1.0)
    recorder.close()
    assert [record["time"] for record in read_records(tmp_path, "rollout")] == [NOON + 9, NOON + 9, NOON + 10]


def test_an_activity_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker")
    with pytest.raises(ConfigError, match=r"'genrate' is not declared\. Did you mean 'generate'"):
        recorder.begin("genrate")
    recorder.close()


def test_a_metric_that_is_not_declared_is_recorded_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both as a record and as a number that is summed up, as sinks read it."""
    recorder = Recorder(tmp_path, "worker", clock=Clock())
    for value in (2.0, 3.0):
        recorder.metric("rollout", reward=1.0, rewrad=value)
    recorder.close()
    assert [record["rewrad"] for record in read_records(tmp_path, "rollout")] == [2.0, 3.0]
    (slot,) = read_slots(writers(tmp_path, METRICS), {"rollout/rewrad"}, NOON, NOON + 10, 10).values()
    assert [rollup.sum for rollup in slot.values()] == [5.0]
    (warning,) = caplog.messages
    assert "'rollout/rewrad' is recorded, but not declared" in warning


def test_numbers_that_are_none_stand_as_null(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "trainer")
    recorder.metric("train", loss=float("nan"), gradient_norm=float("inf"), step=True)
    recorder.close()
    (record,) = read_records(tmp_path, "train")
    assert (record["loss"], record["gradient_norm"], record["step"]) == (None, None, True)
    (series,) = read_series(tmp_path, ["train/loss", "train/step"], max_points=2).series
    assert (series.name, [point.mean for point in series.points]) == ("train/step", [1.0])


def test_two_processes_of_one_role_never_share_a_file(tmp_path: Path) -> None:
    clock = Clock()
    first, second = (Recorder(tmp_path, "worker", clock=clock) for _ in range(2))
    for number in range(100):
        (first, second)[number % 2].metric("rollout", rollout_id=number)
    first.close()
    second.close()
    files = [file for writer in writers(tmp_path, METRICS) for file in writer.folder.iterdir()]
    assert len(files) == 2
    assert sorted(record["rollout_id"] for record in read_records(tmp_path, "rollout")) == list(range(100))


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker")
    recorder.metric("rollout", rollout_id=1)
    with recorder.span("generate"):
        pass
    recorder.close()
    for file in tmp_path.glob("[ms][ep]*/worker/*/*.jsonl"):
        with file.open("ab") as torn:
            torn.write(b'{"time":1699999200.5,"area":"rollout","rollo')
    assert [record["rollout_id"] for record in read_records(tmp_path, "rollout")] == [1]
    assert [span.name for span in read_spans(tmp_path, 0, 2 * NOON).spans] == ["generate"]


KILLED = """
import sys, time
from pathlib import Path
from quartet.telemetry.record import Recorder
recorder = Recorder(Path(sys.argv[1]), "worker")
recorder.begin("generate", lane="session 0")
for number in range(10**9):
    recorder.metric("rollout", rollout_id=number, reward=1.0)
    print(number, time.time(), flush=True)
    time.sleep(0.002)
"""


@pytest.mark.slow
def test_a_killed_writer_loses_no_more_than_was_buffered(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = []
    while not told or told[-1][1] < told[0][1] + 5:
        number, moment = process.stdout.readline().split()
        told.append((int(number), float(moment)))
    os.kill(process.pid, signal.SIGKILL)
    told += [
        (int(line.split()[0]), float(line.split()[1])) for line in process.stdout.read().splitlines() if " " in line
    ]
    process.wait()
    kept = [record["rollout_id"] for record in read_records(tmp_path, "rollout")]
    assert kept == list(range(len(kept))), "a gap, or something twice"
    lost_seconds = told[-1][1] - told[len(kept)][1] if len(kept) < len(told) else 0.0
    assert kept and lost_seconds < 4, "a second; on a busy machine the flusher itself may be late"


def test_a_failed_write_is_raised_by_the_next_call(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "worker")
    (writer,) = writers(tmp_path, METRICS)
    writer.folder.rmdir()
    writer.folder.write_text("in the way")
    recorder.metric("rollout", rollout_id=1)
    with pytest.raises(OSError, match=str(writer.folder)) as failure:
        while True:
            recorder.metric("rollout", rollout_id=2)
            time.sleep(0.05)
    assert failure.value.errno in (errno.ENOTDIR, errno.EEXIST)
    writer.folder.unlink()
    recorder.close()


def test_close_writes_what_it_can_and_then_raises(tmp_path: Path) -> None:
    """The flusher's error and its own: spans still open, and those that wait, are written all the same."""
    recorder = Recorder(tmp_path, "worker")
    (writer,) = writers(tmp_path, METRICS)
    writer.folder.rmdir()
    writer.folder.write_text("in the way")
    recorder.metric("rollout", rollout_id=1)
    with recorder.span("step"):
        recorder.begin("rollout")
    with pytest.raises(OSError, match=str(writer.folder)):
        recorder.close()
    assert {span.name for span in read_spans(tmp_path, 0, 2 * time.time()).spans} == {"rollout", "step"}
    recorder.close()


def test_records_that_fail_at_the_end_do_not_hide_why_it_ended(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as failure, Recorder(tmp_path, "worker") as recorder:
        (writer,) = writers(tmp_path, METRICS)
        writer.folder.rmdir()
        writer.folder.write_text("in the way")
        recorder.metric("rollout", rollout_id=1)
        raise ZeroDivisionError
    (note,) = failure.value.__notes__
    assert note.startswith("and worker could not write its last records: ") and str(writer.folder) in note


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    """A file that may not grow, as on a full disk: the write ends in the middle of a line."""
    recorder = Recorder(tmp_path, "worker")
    with max_file_size(5_000), pytest.raises(OSError, match=f"File too large.*{tmp_path / METRICS}"):
        while True:
            recorder.metric("rollout", rollout_id=0, text="x" * 1_000)
            time.sleep(0.01)
    recorder.metric("rollout", rollout_id=-1)
    recorder.close()
    kept = [record["rollout_id"] for record in read_records(tmp_path, "rollout")]
    assert kept[-1] == -1, "what came after the failure is read"


def test_a_long_span_is_seen_while_it_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, "trainer", clock=clock)
    span = recorder.begin("update", trace="train_step 7")
    clock.now += PIECE_SECONDS + 1
    wait_until(lambda: read_spans(tmp_path, NOON, NOON + 60).spans)
    clock.now += 5
    span.end()
    span.end()
    recorder.close()
    pieces = read_spans(tmp_path, NOON, NOON + 60).spans
    assert [(piece.start, piece.seconds, piece.continues) for piece in pieces] == [
        (NOON, PIECE_SECONDS + 1, True),
        (NOON + PIECE_SECONDS + 1, 5, False),
    ]
    assert {piece.trace for piece in pieces} == {"train_step 7"}


def test_spans_still_open_end_with_their_recorder(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, "engine-1", clock=clock)
    recorder.begin("serve")
    clock.now += 3
    recorder.close()
    (span,) = read_spans(tmp_path, NOON, NOON + 60).spans
    assert (span.role, span.name, span.seconds, span.continues) == ("engine-1", "serve", 3, False)


def test_a_window_of_spans_is_what_overlaps_it(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder(tmp_path, "worker", clock=clock)
    for number in range(200):
        clock.now = NOON + number + 0.5
        recorder.finished(Span(start=NOON + number, seconds=0.5, name="step", lane="session 0"))
    recorder.close()
    starts = [span.start - NOON for span in read_spans(tmp_path, NOON + 70.25, NOON + 73).spans]
    assert starts == [70, 71, 72]
    page = read_spans(tmp_path, NOON, NOON + 200, max_spans=10)
    assert page.truncated and len(page.spans) == 10


def test_no_row_is_crowded_out_of_a_window_with_too_many_spans(tmp_path: Path) -> None:
    clock = Clock()
    with Recorder(tmp_path, "engine", clock=clock) as engine, Recorder(tmp_path, "manager", clock=clock) as manager:
        manager.finished(Span(start=NOON, seconds=0.001, name="judge"))
        for number in range(50):
            engine.finished(Span(start=NOON + number, seconds=0.5, name="answer", lane=f"request {number % 2}"))
    page = read_spans(tmp_path, NOON, NOON + 50, max_spans=11)
    rows = [(span.role, span.lane) for span in page.spans]
    assert page.truncated and rows.count(("manager", "")) == 1
    assert rows.count(("engine", "request 0")) == rows.count(("engine", "request 1")) == 5


def test_a_run_of_an_older_quartet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(RecordsError, match="as an older Quartet wrote them"):
        read_spans(tmp_path, 0, 1)
