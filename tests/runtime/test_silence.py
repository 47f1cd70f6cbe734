"""A module that waits for a processor is not killed, one that hangs is, and the messages say which it was."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from benchmarks.bandit import bandit_recipe
from quartet.config import Runtime
from quartet.ledger import Ledger
from quartet.report.alarms import read_alarms
from quartet.report.alarms.announced import Announced
from quartet.report.alarms.modules import AGAINST_SILENCE
from quartet.report.status import StatusReader
from quartet.runtime import supervisor as supervisor_module
from quartet.runtime.heartbeats import Heartbeats
from quartet.runtime.placer.here import Here
from quartet.runtime.silence import Silence, SilentKills, longest_wait, processor_waits
from quartet.runtime.supervisor import ModuleDiedError, Supervisor
from quartet.telemetry.presence import Presence
from tests.waiting import wait_until


@pytest.fixture
def ledger(tmp_path) -> Iterator[Ledger]:
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        ledger.policies.register_initial("policy")
        yield ledger


@pytest.mark.parametrize(
    ("seconds", "waited_seconds", "is_too_long"),
    [
        (60.0, 0.0, False),
        (60.5, 0.0, True),
        (60.5, None, True),
        (60.5, 0.5, False),
        (240.0, 180.0, False),
        (240.0, 179.0, True),
        (300.0, 300.0, False),
        (300.5, 300.5, True),
    ],
)
def test_waits_for_a_processor_do_not_count_up_to_five_times_the_limit(seconds, waited_seconds, is_too_long):
    silence = Silence(seconds=seconds, waited_seconds=waited_seconds)
    assert silence.is_too_long(Runtime(heartbeat_timeout_seconds=60.0)) == is_too_long


class Threads:
    """Waits of the threads of process 7, and a clock that a test sets."""

    def __init__(self, **waits: float) -> None:
        self.now, self.waits = 0.0, {int(name[1:]): waited for name, waited in waits.items()}

    def clock(self) -> float:
        return self.now

    def read(self, pid: int) -> dict[int, float]:
        assert pid == 7
        return dict(self.waits)


def test_the_thread_that_waited_most_since_the_last_heartbeat_counts(ledger):
    threads = Threads(t1=100.0, t2=5.0)
    heartbeats = Heartbeats(ledger, threads.clock, threads.read)
    heartbeats.started("trainer", 7)
    presence = Presence(ledger.modules, "trainer", interval_seconds=0)
    heartbeats.poll()
    threads.waits[3] = 0.0
    for second in range(1, 5):
        threads.now = float(second)
        threads.waits = {1: threads.waits[1] + 0.25, 2: threads.waits[2] + 0.75, 3: threads.waits[3] + 0.5}
        heartbeats.poll()
    assert heartbeats.silence("trainer") == Silence(seconds=4.0, waited_seconds=3.0)
    del threads.waits[2]
    assert heartbeats.silence("trainer") == Silence(seconds=4.0, waited_seconds=2.0)
    presence.beat()
    heartbeats.poll()
    assert heartbeats.silence("trainer") == Silence(seconds=0.0, waited_seconds=0.0)


def test_no_more_waiting_is_reported_than_silence_was_counted(ledger):
    """The supervisor waited for a processor, too, and did not poll for ten seconds."""
    threads = Threads(t1=0.0)
    heartbeats = Heartbeats(ledger, threads.clock, threads.read)
    heartbeats.started("trainer", 7)
    threads.now, threads.waits = 10.0, {1: 10.0}
    heartbeats.poll()
    assert heartbeats.silence("trainer") == Silence(seconds=1.0, waited_seconds=1.0)


def test_a_process_of_another_machine_has_no_known_waits(ledger):
    heartbeats = Heartbeats(ledger, waits=lambda pid: pytest.fail("its id belongs to another process here"))
    heartbeats.started("trainer", None)
    assert heartbeats.silence("trainer").waited_seconds is None


def test_kills_are_counted_from_the_newest_train_step():
    first = SilentKills().and_one(0)
    second = first.and_one(0)
    after_a_step = second.and_one(3)
    assert [kills.count for kills in (first, second, after_a_step, after_a_step.and_one(3))] == [1, 2, 1, 2]
    assert (first.repeated, second.repeated) == ("", ", twice in a row without a train step in between")


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    return psutil.Process(process.pid).cpu_times().user


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's statistics of Linux")
def test_waits_of_a_process_grow_while_another_uses_its_processor_and_not_while_it_is_stopped():
    spin = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\nwhile True: pass"
    with ExitStack() as stack:
        processes = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
        for process in processes:
            stack.callback(process.wait)
            stack.callback(process.kill)
        starved, other = processes
        wait_until(lambda: min(map(processor_seconds, processes)) > 0.1)

        def goes_on() -> None:
            begun = processor_seconds(other)
            wait_until(lambda: processor_seconds(other) > begun + 0.2)

        before = processor_waits(starved.pid)
        assert set(before) == {starved.pid}
        ran_before = processor_seconds(starved)
        psutil.Process(starved.pid).nice(19)

        def waits_more_than_it_runs() -> bool:
            waited = longest_wait(before, processor_waits(starved.pid)) or 0.0
            return waited > 0.5 + 3 * (processor_seconds(starved) - ran_before)

        wait_until(waits_more_than_it_runs)
        starved.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(starved.pid).status() == psutil.STATUS_STOPPED)
        goes_on()
        stopped = processor_waits(starved.pid)
        goes_on()
        assert processor_waits(starved.pid) == stopped
    assert processor_waits(starved.pid) == {}


class Lingering(subprocess.Popen[bytes]):
    """A process whose death is noticed some polls after its kill."""

    polls_left, is_killed = 5, False

    def kill(self) -> None:
        super().kill()
        self.is_killed = True

    def poll(self) -> int | None:
        if self.is_killed and self.polls_left:
            self.polls_left -= 1
            return None
        return super().poll()


class Elsewhere(Here):
    """Placer of processes that are not of this machine."""

    on_this_machine = False


def supervised(ledger: Ledger, placer: type[Here], share: float, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Supervisor of modules that sleep, with a limit of 10 s and one restart. A second passes with each poll, and a
    module waits for a processor for `share` of it."""
    seconds, now, processes = iter(range(1_000_000)), [0.0], []

    def clock() -> float:
        now[0] = float(next(seconds))
        return now[0]

    def start(*_: object) -> subprocess.Popen[bytes]:
        processes.append(Lingering(["sleep", "1000"]))
        return processes[-1]

    def waits(pid: int) -> dict[int, float]:
        assert pid == processes[-1].pid
        return {pid: share * now[0]}

    monkeypatch.setattr(Here, "start", start)
    monkeypatch.setattr(supervisor_module, "TICK_SECONDS", 0.005)
    monkeypatch.setattr(supervisor_module, "Heartbeats", lambda ledger: Heartbeats(ledger, clock, waits))
    runtime = {"heartbeat_timeout_seconds": 10, "max_restarts_per_module": 1, "max_restart_delay_seconds": 0.01}
    recipe = bandit_recipe(Path("unused"), runtime=runtime)
    return Supervisor(recipe, ledger.run_dir, ledger, placer(recipe, ledger.run_dir))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("placer", "share", "seconds", "words"),
    [
        (Here, 0.0, 11.0, "no heartbeat for 11 s, of which it waited 0 ms for a processor"),
        (Here, 0.75, 41.0, "no heartbeat for 41 s, of which it waited 31 s for a processor"),
        (Here, 1.0, 51.0, "no heartbeat for 51 s, of which it waited 51 s for a processor"),
        (Elsewhere, 1.0, 11.0, "no heartbeat for 11 s"),
    ],
)
def test_a_kill_is_explained_where_its_reader_looks(ledger, monkeypatch, caplog, placer, share, seconds, words):
    with supervised(ledger, placer, share, monkeypatch) as supervisor, pytest.raises(ModuleDiedError) as ended:
        supervisor.start("trainer")
        supervisor.run_until(lambda: None)
    killed = f"killed by the supervisor: {words} (limit 10 s)"
    twice = ", twice in a row without a train step in between"
    assert ended.value.what == f"module 'trainer' died twice; last output: {killed}{twice}"
    where = ledger.run_dir / "logs" / "supervisor.jsonl"
    assert ended.value.advice == f"{AGAINST_SILENCE}; see {where}, then continue with --resume"
    assert "heartbeat_timeout_seconds under [runtime]" in AGAINST_SILENCE
    assert (ledger.run_dir / "logs" / "trainer.stderr").read_text().split("\n") == ["", killed, "", killed + twice, ""]
    silences = [event.fields for event in ledger.events() if event.kind == "module_silent"]
    assert [(one["module"], one["seconds"]) for one in silences] == [("trainer", seconds)] * 2
    kills = [text for text in caplog.messages if text.startswith("module trainer killed")]
    assert kills == [f"module trainer {text}; {AGAINST_SILENCE}" for text in (killed, killed + twice)]


@pytest.mark.slow
def test_an_alarm_explains_each_kill_and_is_announced_again(ledger, monkeypatch):
    announced, lines = Announced(), []
    with supervised(ledger, Here, 0.0, monkeypatch) as supervisor, pytest.raises(ModuleDiedError):
        recipe = bandit_recipe(Path("unused"))

        def announce() -> None:
            status = StatusReader(ledger.run_dir, ledger, recipe).read()
            alarms = read_alarms(ledger.run_dir, ledger, recipe, status)
            lines.extend(announced.lines(alarm for alarm in alarms if alarm.kind == "died"))

        supervisor.start("trainer")
        try:
            supervisor.run_until(lambda: None, announce)
        finally:
            announce()  # the run ends before the next tick
    assert [line.partition(" in ten minutes")[0] for line in lines] == [
        "alarm: trainer died once",
        "alarm: trainer died twice",
    ]
    assert all("no heartbeat for 11 s" in line and line.endswith("see logs/supervisor.jsonl") for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("hang", ["exec sleep 1000", "while :; do :; done", "kill -STOP $$"])
def test_a_module_that_hangs_is_killed(ledger, monkeypatch, hang):
    """Its silence is measured: it sleeps, computes without an end, or is stopped."""
    monkeypatch.setattr(Here, "start", lambda *_: subprocess.Popen(["sh", "-c", hang]))
    runtime = {"heartbeat_timeout_seconds": 0.3, "max_restarts_per_module": 0}
    with (
        Supervisor(bandit_recipe(Path("unused"), runtime=runtime), ledger.run_dir, ledger) as supervisor,
        pytest.raises(ModuleDiedError, match="died once; last output: killed by the supervisor: no heartbeat for"),
    ):
        supervisor.start("trainer")
        supervisor.run_until(lambda: None)
