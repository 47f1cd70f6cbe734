"""Series: whatever the writers did, the points sum up to the records, and no more is read than needed."""

import math
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quartet.errors import ConfigError
from quartet.telemetry import slots
from quartet.telemetry.record import Recorder
from quartet.telemetry.rollup import ROLLUP_SECONDS, Ladder, Rollup, Slot, merge
from quartet.telemetry.series import SeriesPage, read_series
from quartet.telemetry.slices import METRICS, writers
from quartet.telemetry.slots import read_slots

NOON = 1_699_999_200.0
NAME = "rollout/reward"

pauses = st.one_of(st.floats(0, 2), st.floats(0, 30), st.floats(0, 5000))
values = st.floats(-1e6, 1e6)


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(pauses, values), min_size=1, max_size=60), st.integers(0, 60))
def test_every_level_of_the_ladder_sums_up_every_record_once(steps, looked_at) -> None:
    ladder, now, recorded = Ladder(), NOON, []
    taken: list[tuple[int, Slot]] = []
    for number, (pause, value) in enumerate(steps):
        now += pause
        if now >= ladder.due_at or number == looked_at:
            taken += ladder.take(now)
        ladder.add(now, [(NAME, value)])
        recorded.append((now, value))
    taken += ladder.take(math.inf)
    for seconds in ROLLUP_SECONDS:
        level = [slot for width, slot in taken if width == seconds]
        assert [slot.begin for slot in level] == sorted({slot.begin for slot in level}), "a slot is written once"
        for slot in level:
            inside = [value for moment, value in recorded if slot.begin <= moment < slot.begin + seconds]
            assert slot.series[NAME] == Rollup(
                len(inside), pytest.approx(sum(inside)), min(inside), max(inside), inside[-1]
            )
        assert sum(slot.series[NAME].count for slot in level) == len(recorded)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lives=st.lists(
        st.tuples(st.lists(st.tuples(pauses, values), min_size=1, max_size=25), st.booleans()), min_size=1, max_size=3
    ),
    seconds=st.sampled_from((1, 5, 10, 30, 60, 600, 3600, 7200)),
    start=st.floats(0, 3000),
)
def test_slots_of_any_width_are_those_of_the_records(tmp_path_factory, lives, seconds, start) -> None:
    """Processes one after the other, some of them killed: their coarser slots are missing, not their records."""
    run, now, recorded = tmp_path_factory.mktemp("run"), NOON, []
    with ExitStack() as killed_recorders:
        for steps, killed in lives:
            clock = Clock(now)  # of this process alone: it stands still once the process is dead
            recorder = Recorder(run, "worker", clock=clock)
            for pause, value in steps:
                clock.now += pause
                recorder.metric("rollout", reward=value)
                recorded.append((clock.now, value))
            if killed:
                recorder.flush()
                killed_recorders.callback(recorder.close)
            else:
                recorder.close()
            now = clock.now + 0.5
        found = read_slots(writers(run, METRICS), {NAME}, NOON + start, now + 1, seconds).get((NAME, "worker"), {})
    begin = (NOON + start) // seconds * seconds
    expected: dict[int, Rollup] = {}
    for moment, value in recorded:
        if moment >= begin:
            merge(expected, {int(moment // seconds) * seconds: Rollup(1, value, value, value, value)})
    assert found.keys() == expected.keys()
    for slot, rollup in expected.items():
        got = found[slot]
        assert (got.count, got.min, got.max, got.last) == (rollup.count, rollup.min, rollup.max, rollup.last)
        assert got.sum == pytest.approx(rollup.sum, abs=1e-6)


def record_minutes(run: Path, minutes: int, clock: Clock, recorder: Recorder | None = None) -> Recorder:
    recorder = recorder or Recorder(run, "worker", clock=clock)
    for _ in range(minutes * 60):
        clock.now += 1
        recorder.metric("rollout", reward=1.0)
    recorder.flush()
    return recorder


def test_a_long_run_is_read_from_its_coarse_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    record_minutes(tmp_path, 400, clock).close()
    read: list[Path] = []
    monkeypatch.setattr(slots, "lines_of", lambda path: read.append(path) or lines_of(path))
    page = read_series(tmp_path, [NAME], max_points=100)
    assert page.slot_seconds == 300 and page.replaces
    assert sum(point.count for point in page.series[0].points) == 24_000
    assert len(page.series[0].points) <= 100
    assert {path.parts[-5] for path in read} == {"rollups"}, "no record of a finished run is read again"
    assert len(read) <= 4


lines_of = slots.lines_of


def test_a_cursor_gives_what_came_since(tmp_path: Path) -> None:
    clock = Clock()
    recorder = record_minutes(tmp_path, 3, clock)
    shown = replaced({}, read_series(tmp_path, [NAME], end=clock.now))
    cursor = read_series(tmp_path, [NAME], end=clock.now).cursor
    record_minutes(tmp_path, 1, clock, recorder)
    page = read_series(tmp_path, [NAME], end=clock.now, cursor=cursor)
    assert not page.replaces and len(page.series[0].points) < 70
    assert replaced(shown, page) == replaced({}, read_series(tmp_path, [NAME], end=clock.now))
    record_minutes(tmp_path, 30, clock, recorder)
    page = read_series(tmp_path, [NAME], end=clock.now, cursor=page.cursor)
    assert page.replaces and page.slot_seconds > 1, "the run outgrew the slots: all points are new"
    recorder.close()


def replaced(shown: dict[float, int], page: SeriesPage) -> dict[float, int]:
    return shown | {point.time: point.count for point in page.series[0].points}


def test_an_axis_counts_train_steps(tmp_path: Path) -> None:
    clock = Clock()
    trainer, worker, manager = (Recorder(tmp_path, role, clock=clock) for role in ("trainer", "worker", "manager"))
    for step in range(1, 6):
        clock.now += 4
        worker.metric("rollout", reward=float(step))
        manager.metric("data", rollouts=8 * step, group_members=8)
        clock.now += 4
        trainer.metric("train", step=step, version=step + 10, loss=0.5)
    for recorder in (trainer, worker, manager):
        recorder.close()
    loss, reward = read_series(tmp_path, ["train/loss", NAME], axis="train_step", end=clock.now + 1).series
    assert [point.x for point in loss.points] == [1, 2, 3, 4, 5]
    assert [point.x for point in reward.points] == [0, 1, 2, 3, 4], "a reward counts for the step that was the newest"
    late = read_series(tmp_path, [NAME], axis="version", start=clock.now - 5, end=clock.now + 1).series[0]
    assert [point.x for point in late.points] == [14], "what was before the window is known"
    names = ["train/loss", NAME, "data/group_members"]
    for series in read_series(tmp_path, names, axis="rollouts", end=clock.now + 1).series:
        assert [point.x for point in series.points] == [8, 16, 24, 32, 40]


def test_roles_can_be_told_apart(tmp_path: Path) -> None:
    clock = Clock()
    for role, share in (("worker", 0.25), ("trainer", 0.75)):
        recorder = Recorder(tmp_path, role, clock=clock)
        recorder.metric("module", waiting_fraction=share)
        recorder.close()
    apart = read_series(tmp_path, ["module/waiting_fraction"], end=NOON + 1, by_role=True).series
    assert [(series.role, series.points[0].mean) for series in apart] == [("trainer", 0.75), ("worker", 0.25)]
    (together,) = read_series(tmp_path, ["module/waiting_fraction"], end=NOON + 1).series
    assert (together.role, together.points[0].count, together.points[0].mean) == ("", 2, 0.5)


def test_rates_of_several_processes_are_added(tmp_path: Path) -> None:
    for role, rates in (("engine", (100, 300)), ("engine-1", (50,)), ("engine-2", (25,))):
        recorder = Recorder(tmp_path, role, clock=Clock())
        for rate in rates:
            recorder.metric("engine", generated_tokens_per_second=rate)
        recorder.close()
    (together,) = read_series(tmp_path, ["engine/generated_tokens_per_second"], end=NOON + 1).series
    (point,) = together.points
    assert (point.mean, point.min, point.max, point.last) == (275, 175, 375, 375)


def test_wrong_questions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'rollout/reward'"):
        read_series(tmp_path, ["rollout/rewards"])
    for cursor in ("yesterday", "0@5", "10@", "@10"):
        with pytest.raises(ConfigError, match="not a cursor"):
            read_series(tmp_path, [NAME], cursor=cursor)
    assert read_series(tmp_path, [NAME]).series == []
