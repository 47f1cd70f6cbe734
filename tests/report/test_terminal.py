"""What a terminal shows: lines of dots, progress, a screen of a real run, and a status that follows a run."""

import io
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.bandit import bandit_recipe
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.report.braille import braille_line
from quartet.report.screen import show_runs
from quartet.report.snapshot import SnapshotReader
from quartet.run.run_dir import RunLock
from quartet.telemetry.presence import Presence
from quartet.terminal.progress import Watched

pytestmark = pytest.mark.slow

NUMBERS = st.floats(-1e6, 1e6)


@pytest.fixture(scope="module")
def run(tmp_path_factory, recorded_run) -> Path:
    """A copy, since some tests lock it."""
    copy, open_files = tmp_path_factory.mktemp("runs") / "bandit", shutil.ignore_patterns("*-wal", "*-shm")
    return shutil.copytree(recorded_run, copy, ignore=open_files)


def dots(lines: list[str]) -> list[list[bool]]:
    """Rows of dots, from the top."""
    bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
    return [[bool(ord(char) & bit) for char in line for bit in pair] for line in lines for pair in bits]


@given(st.dictionaries(st.integers(0, 60), NUMBERS, min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 4))
def test_the_line_reaches_from_the_first_place_to_the_last_and_does_not_break(places, columns, rows):
    lines = braille_line(sorted(places.items()), columns, rows, 60)
    assert [len(line) for line in lines] == [columns] * rows
    heights = [[y for y, row in enumerate(dots(lines)) if row[x]] for x in range(2 * columns)]
    first, last = (round(x / 60 * (2 * columns - 1)) for x in (min(places), max(places)))
    assert [x for x, column in enumerate(heights) if column] == list(range(first, last + 1))
    drawn = heights[first : last + 1]
    for column in drawn:
        assert column == list(range(column[0], column[-1] + 1))
    for before, after in pairwise(drawn):
        assert min(after) <= max(before) + 1 and min(before) <= max(after) + 1


def test_the_highest_value_is_at_the_top_and_the_lowest_at_the_bottom():
    picture = dots(braille_line([(0, 0), (1, 0), (2, 5), (3, 5)], 2, 2, 3))
    assert picture[7][:2] == [True, True] and picture[0][3] and not picture[0][0]
    assert braille_line([], 2, 1, 3) == ["⠀⠀"]


def test_values_of_one_train_step_share_a_column():
    """However many records a chart has, and wherever in the run they lie."""
    few, many = [(0, 0.0), (20, 1.0), (40, 0.0)], [(step, float(step == 20)) for step in range(41)]
    peaks = [dots(braille_line(places, 11, 3, 40))[0].index(True) for places in (few, many)]
    assert peaks[0] == peaks[1]
    late = dots(braille_line([(30, 1.0), (40, 2.0)], 11, 3, 40))
    assert not any(row[x] for row in late for x in range(16))


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_screen_of_a_run_fits_the_terminal(run, width):
    file = io.StringIO()
    show_runs([run], Console(file=file, width=width))
    shown = file.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for words in ("training success", "held-out success", "gradient norm", "not running", "tasks: ", "fixed"):
        assert words in shown
    assert re.search("[⠁-⣿]{10}", shown)
    assert shown.count("train step") >= 5, "every chart ends at the run's last train step"


def test_a_run_at_work_is_told_from_one_at_rest(run):
    with SnapshotReader(run) as reader:
        assert not reader.read().running and reader.read().status.progress is None
        with RunLock(run), closing(Ledger.open(run)) as ledger:
            for module in ("manager", "worker", "trainer"):  # a heartbeat: those of the recorded run are old
                Presence(ledger.modules, module).working("at work")
            snapshot = reader.read()
        assert snapshot.running and snapshot.to_dict()["alarms"] == []


def test_the_json_of_a_run_at_rest_has_the_evaluations_of_its_panel(run):
    with SnapshotReader(run) as reader:
        snapshot = reader.read()
    console = Console(width=80, record=True)
    console.print(snapshot.panel())
    before, after = (f"{100 * one['success']:.0f} %" for one in snapshot.to_dict()["held_out"]["greedy"])
    assert f"held-out success, greedy  {before} → {after} at train step 3" in console.export_text()


def test_a_recipe_of_another_quartet_costs_no_more_than_alarms(run, tmp_path):
    copy = tmp_path / "run"
    copy.mkdir()
    (copy / "config.toml").write_text("name = 1\n")
    (copy / "ledger.sqlite").write_bytes((run / "ledger.sqlite").read_bytes())
    with SnapshotReader(copy) as reader:
        assert "progress and alarms are not available" in reader.note
        assert reader.read().status.train_step == 3


def test_watching_ends_when_the_run_ends(run):
    lock = RunLock(run)
    lock.__enter__()
    command = [sys.executable, "-m", "quartet", "status", "--watch", "--json", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["running"]
        lock.__exit__(None, None, None)
        rest = [json.loads(line)["running"] for line in process.stdout]
    assert rest[-1] is False and process.returncode == 0


def test_watching_prints_lines_into_a_pipe_and_at_the_end_the_panel(run):
    command = [sys.executable, "-m", "quartet", "status", "--watch", str(run)]
    with RunLock(run):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = next(line for line in process.stdout if not line.startswith("alarm"))
    with process:
        rest = process.stdout.read()
    assert line.startswith("finished  step 3  version 3")
    assert "not running" in rest and "continue with" in rest and process.returncode == 0
    assert re.search(r"held-out success, greedy  \d+ % → \d+ % at train step 3", rest)


def test_each_snapshot_is_one_line_of_json_in_a_terminal_too(run):
    code, shown = in_terminal("status", "--watch", "--json", str(run))
    assert code == 0
    assert [json.loads(line)["running"] for line in shown.splitlines()] == [False]


def test_ctrl_c_ends_watching_and_is_no_failure(run):
    command = [sys.executable, "-m", "quartet", "status", "--watch", "--json", str(run)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def heed_ctrl_c() -> None:  # which tests in the background ignore
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with RunLock(run), subprocess.Popen(command, **pipes, text=True, preexec_fn=heed_ctrl_c) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(2)
        process.communicate(timeout=60)
    assert process.returncode == 0


def in_terminal(*arguments: str) -> tuple[int, str]:
    """Exit code and what a person at a terminal of 80 columns sees, escape sequences included."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "quartet", *arguments], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    chunks: list[bytes] = []
    reader = threading.Thread(target=_read_all, args=(ours, chunks))
    reader.start()
    code = process.wait(timeout=120)
    reader.join()
    os.close(ours)
    return code, b"".join(chunks).decode()


def _read_all(descriptor: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 4096)
        except OSError:  # how Linux says that nobody writes any more
            return
        if not chunk:
            return
        chunks.append(chunk)


def test_a_long_command_draws_a_bar_in_a_terminal_and_none_for_scripts(run):
    code, shown = in_terminal("ledger", "check", str(run))
    assert code == 0 and "trajectories checked" in shown and "━" in shown and "0 findings" in shown
    quiet = subprocess.run(
        [sys.executable, "-m", "quartet", "ledger", "check", str(run), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(quiet.stdout)["findings"] == [] and quiet.stderr == ""


def test_where_there_is_no_terminal_a_line_comes_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr("quartet.terminal.progress.LINE_SECONDS", 0.0)
    with Watched("things [done]") as watched:
        watched(3, 10, "note")
        watched(4, 0)
    assert capsys.readouterr().err.splitlines() == ["things [done]  3 of 10  note", "things [done]  4"]


def test_fine_tuning_shows_how_far_it_is(bandit_policy, tmp_path):
    recipe = bandit_recipe(bandit_policy)
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(recipe))
    settings = {
        "sft.exercises": "recipes.miniwob.copying:CopyingExercises",
        "sft.exercise_steps": 3,
        "sft.steps": 0,
        "sft.tokens_per_batch": 128,
        "sft.output": tmp_path / "policy",
    }
    code, shown = in_terminal("sft", str(file), *(f"--set={key}={value}" for key, value in settings.items()))
    assert code == 0, shown
    assert "fine-tuning" in shown and "3/3" in shown and "accuracy" in shown
    assert "3 steps on exercises and 0 on demonstrations" in shown
