"""What the supervisor does when a module dies, and while the ledger's server is away."""

import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError, InterruptedByUser, LedgerUnreachableError, SetupError
from quartet.ledger import Ledger
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.recipe.file import to_toml
from quartet.report.status import GIVEN_UP
from quartet.runtime import supervisor as supervisor_module
from quartet.runtime.heartbeats import MAX_GAP_SECONDS, Heartbeats
from quartet.runtime.module import FAULT
from quartet.runtime.placer.here import Here
from quartet.runtime.process import ModuleProcess
from quartet.runtime.supervisor import LONG_LIFE_SECONDS, ModuleDiedError, Supervisor
from quartet.telemetry.presence import Presence
from tests.ledger.samples import tamper
from tests.postgresql import needs_postgresql, server_url


@pytest.fixture
def ledger(tmp_path):
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        yield ledger


@pytest.fixture
def supervisor(ledger):
    return Supervisor(bandit_recipe(Path("unused")), ledger.run_dir, ledger)


def here(run_dir: Path) -> Here:
    return Here(bandit_recipe(Path("unused")), run_dir)


def away_for(looks: int):
    """A condition whose first looks do not reach the ledger."""
    answers = iter([None] * looks)

    def condition() -> str:
        for _ in answers:
            raise LedgerUnreachableError("cannot reach the ledger")
        return "back"

    return condition


def test_supervisor_outlasts_an_unreachable_ledger_and_reports_it_once(supervisor, caplog):
    assert supervisor.run_until(away_for(3)) == "back"
    assert caplog.messages == ["waiting for the database: cannot reach the ledger"]


def test_supervisor_ends_when_the_ledger_stays_unreachable(supervisor, monkeypatch):
    monkeypatch.setattr(ANSWER_TIMEOUT, "seconds", 0.0)
    with pytest.raises(LedgerUnreachableError):
        supervisor.run_until(away_for(3))


@pytest.mark.slow
def test_a_module_that_refuses_its_recipe_is_not_started_again(supervisor, ledger):
    """Nothing has written its `config.toml`."""
    with supervisor, pytest.raises(ConfigError, match=r"'manager' cannot run: the run's .*is missing"):
        supervisor.start("manager")
        supervisor.run_until(lambda: None)
    assert [event.fields["code"] for event in ledger.events()] == [2]


def test_a_signal_ends_the_wait_for_a_server_that_is_away(supervisor):
    def away() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        raise LedgerUnreachableError("cannot reach the ledger")

    with supervisor, pytest.raises(InterruptedByUser, match="stopped by SIGTERM"):
        supervisor.outlast(away)


@pytest.mark.slow
def test_module_state_of_an_earlier_start_does_not_count_when_its_process_id_is_reused(tmp_path, monkeypatch):
    """As in a container, where process ids begin anew."""
    monkeypatch.setattr(ModuleProcess, "pid", os.getpid())
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        Presence(ledger.modules, "manager", interval_seconds=0).working("admitting groups")
        with Supervisor(bandit_recipe(Path("unused")), tmp_path / "run", ledger) as supervisor:
            supervisor.start("manager")
            assert not supervisor.are_up("manager")
            Presence(ledger.modules, "manager", interval_seconds=0).working("admitting groups")
            assert supervisor.are_up("manager")


def wait_for_death(process: ModuleProcess) -> None:
    while process.poll() is None:
        time.sleep(0.01)


@pytest.mark.slow
def test_restarts_after_the_first_are_delayed(tmp_path):
    process = ModuleProcess("manager", tmp_path, here(tmp_path).start, max_restarts=2, max_delay_seconds=1000.0)
    process.start()
    wait_for_death(process)
    assert process.restart_if_due()
    wait_for_death(process)
    assert not process.restart_if_due()


@pytest.mark.slow
@pytest.mark.parametrize("jump_seconds", [-3600, 3600])
def test_a_wall_clock_that_jumps_delays_no_restart(tmp_path, monkeypatch, jump_seconds):
    process, wall_clock = (
        ModuleProcess("manager", tmp_path, here(tmp_path).start, max_restarts=2, max_delay_seconds=0.01),
        time.time,
    )
    process.start()
    wait_for_death(process)
    assert process.restart_if_due(), "the first restart has no delay"
    wait_for_death(process)
    monkeypatch.setattr(time, "time", lambda: wall_clock() + jump_seconds)
    time.sleep(0.1)
    assert process.restart_if_due()
    process.terminate()
    process.join(time.monotonic() + 60)


@pytest.mark.parametrize("jump_seconds", [-3600, 3600])
def test_a_wall_clock_that_jumps_silences_no_module_and_hides_no_silence(tmp_path, jump_seconds):
    wall_clock, now = [time.time()], [0.0]
    with closing(Ledger.create(tmp_path / "run", clock=lambda: wall_clock[0])) as ledger:
        heartbeats = Heartbeats(ledger, clock=lambda: now[0])
        heartbeats.started("worker")
        presence = Presence(ledger.modules, "worker", interval_seconds=0)
        heartbeats.poll()
        wall_clock[0] += jump_seconds
        for second in range(1, 6):
            now[0] = float(second)
            heartbeats.poll()
        assert heartbeats.silent_seconds("worker") == 5.0
        presence.beat()
        heartbeats.poll()
        assert heartbeats.silent_seconds("worker") == 0.0


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def test_reading_a_heartbeat_again_is_no_further_heartbeat(tmp_path, database):
    now, url = [0.0], server_url() if database == "postgresql" else ""
    with closing(Ledger.create(tmp_path / "run", url=url)) as ledger:
        heartbeats = Heartbeats(ledger, clock=lambda: now[0])
        heartbeats.started("worker")
        Presence(ledger.modules, "worker", interval_seconds=0).beat()
        for second in range(6):
            now[0] = float(second)
            heartbeats.poll()
        assert heartbeats.silent_seconds("worker") == 5.0


def test_after_a_reboot_a_dead_module_is_as_silent_as_its_heartbeat_is_old(ledger):
    """The clock of leases restarts, so the end of a former membership lies far ahead."""
    Presence(ledger.modules, "worker", interval_seconds=0).beat()
    tamper(ledger, "UPDATE modules SET live_until = live_until + 1000000")
    (row,) = ledger.modules.all()
    assert row.beat_at == row.stored_beat <= time.time()


def test_time_without_supervision_does_not_count_as_silence(tmp_path):
    """The ledger's server was frozen, or the supervisor itself was stopped."""
    now = [0.0]
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        heartbeats = Heartbeats(ledger, clock=lambda: now[0])
        heartbeats.started("worker")
        now[0] = 3600.0
        heartbeats.poll()
        assert heartbeats.silent_seconds("worker") == MAX_GAP_SECONDS


@pytest.mark.slow
def test_a_silent_module_is_killed_and_started_again_until_its_restarts_are_used_up(tmp_path):
    """With no patience at all even a module at work is silent for too long."""
    runtime = {"heartbeat_timeout_seconds": 1e-6, "max_restarts_per_module": 1, "max_restart_delay_seconds": 0.01}
    recipe, ledger = bandit_recipe(Path("unused"), runtime=runtime), Ledger.create(tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text(to_toml(recipe))
    with Supervisor(recipe, tmp_path / "run", ledger) as supervisor:
        supervisor.start("env")
        with pytest.raises(ModuleDiedError, match="module 'env' died twice; last output"):
            supervisor.run_until(lambda: None)
    kinds = [event.kind for event in ledger.events()]
    ledger.close()
    assert kinds.count("module_died") == 2
    assert kinds.count("module_silent") == 2


class Finishing:
    """A module that has half a second of work left when it is asked to stop, and is killed after no time at all."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
        self._ready, self._done = tmp_path / "ready", tmp_path / "done"
        last = f"sleep 0.5; touch {self._done}; exit {code}"
        script = f"trap '{last}' TERM; touch {self._ready}; while :; do sleep 0.02; done"
        monkeypatch.setattr(Here, "start", lambda *_: subprocess.Popen(["sh", "-c", script]))
        monkeypatch.setattr(supervisor_module, "STOP_SECONDS", 0.0)

    def start(self, supervisor: Supervisor) -> None:
        supervisor.start("trainer")
        while not self._ready.exists():
            time.sleep(0.01)

    @property
    def has_finished(self) -> bool:
        return self._done.exists()


@pytest.mark.parametrize(("timeout_seconds", "finishes"), [(60, True), (1e-6, False)])
def test_a_module_may_finish_its_work_as_long_as_it_is_not_silent(
    tmp_path, ledger, monkeypatch, timeout_seconds, finishes
):
    module = Finishing(tmp_path, monkeypatch)
    recipe = bandit_recipe(Path("unused"), runtime={"heartbeat_timeout_seconds": timeout_seconds})
    with Supervisor(recipe, ledger.run_dir, ledger) as supervisor:
        module.start(supervisor)
        supervisor.finish("trainer")
        assert module.has_finished == finishes
    assert ("module_silent" in [event.kind for event in ledger.events()]) != finishes


def test_a_module_that_fails_while_it_finishes_its_work_is_reported(tmp_path, ledger, supervisor, monkeypatch):
    module = Finishing(tmp_path, monkeypatch, code=FAULT)
    with supervisor:
        module.start(supervisor)
        log = ledger.run_dir / "logs" / "trainer.stderr"
        log.write_text("OSError: cannot write the last checkpoint\n")
        supervisor.finish("trainer")
    (death,) = (event for event in ledger.events() if event.kind == "module_died")
    assert death.fields == {
        "module": "trainer",
        "code": FAULT,
        "last_words": "OSError: cannot write the last checkpoint",
    }


def test_a_module_that_cannot_finish_its_work_on_this_machine_ends_the_run(tmp_path, supervisor, monkeypatch):
    module = Finishing(tmp_path, monkeypatch, code=SetupError.exit_code)
    with pytest.raises(SetupError, match="module 'trainer' cannot run"), supervisor:
        module.start(supervisor)
        supervisor.finish("trainer")


def test_the_user_can_stop_a_run_whose_module_finishes_its_work(tmp_path, supervisor, monkeypatch):
    module = Finishing(tmp_path, monkeypatch)
    with pytest.raises(InterruptedByUser, match="stopped by the user"), supervisor:
        module.start(supervisor)
        supervisor.finish("trainer", on_tick=lambda: signal.raise_signal(signal.SIGINT))
    assert not module.has_finished


@pytest.mark.parametrize(
    ("long_life_seconds", "end"),
    [(LONG_LIFE_SECONDS, "died 3 times of the same exception"), (0.0, "died 5 times; last output")],
)
def test_same_exception_ends_the_run_only_soon_after_each_start(ledger, monkeypatch, long_life_seconds, end):
    """One that comes once a day is not in the way of the run: the restarts bound it."""
    monkeypatch.setattr(supervisor_module, "LONG_LIFE_SECONDS", long_life_seconds)
    with supervisor_of_faults(ledger, monkeypatch) as supervisor, pytest.raises(ModuleDiedError, match=end):
        supervisor.start("worker")
        supervisor.run_until(lambda: None)


def test_sink_that_dies_of_the_same_exception_is_given_up_and_the_run_continues(ledger, monkeypatch):
    with supervisor_of_faults(ledger, monkeypatch) as supervisor:
        supervisor.start("sink-prometheus")
        assert supervisor.run_until(lambda: "given up" if ledger.value(GIVEN_UP) else None) == "given up"
    kinds = [event.kind for event in ledger.events()]
    assert kinds.count("module_died") == supervisor_module.MOST_IDENTICAL_FAULTS


def test_a_full_disk_is_named_instead_of_a_module_that_died(ledger, monkeypatch):
    full = supervisor_of_faults(ledger, monkeypatch, disk={"min_free_megabytes": 10**9})
    with full as supervisor, pytest.raises(SetupError, match=r"only .* MB are free"):
        supervisor.start("env")
        supervisor.run_until(lambda: None)


def supervisor_of_faults(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, **sections: dict[str, int]) -> Supervisor:
    """Supervisor whose modules die of the same exception at once; it restarts each up to four times."""

    def failing(_placer: Here, _module: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as stderr:
            return subprocess.Popen(["sh", "-c", f"echo OSError: out of memory >&2; exit {FAULT}"], stderr=stderr)

    monkeypatch.setattr(Here, "start", failing)
    monkeypatch.setattr(supervisor_module, "TICK_SECONDS", 0.01)
    runtime = {"max_restarts_per_module": 4, "max_restart_delay_seconds": 0.01}
    return Supervisor(bandit_recipe(Path("unused"), runtime=runtime, **sections), ledger.run_dir, ledger)


@pytest.mark.slow
def test_death_of_a_module_is_recorded_once_the_ledger_is_reachable(supervisor, ledger, monkeypatch):
    event, away = Ledger.event, iter([True])

    def reached_the_second_time(ledger: Ledger, kind: str, **fields: object) -> None:
        if next(away, False):
            raise LedgerUnreachableError("cannot reach the ledger")
        event(ledger, kind, **fields)

    monkeypatch.setattr(Ledger, "event", reached_the_second_time)
    with supervisor, pytest.raises(ConfigError, match=r"config\.toml is missing"):
        supervisor.start("manager")
        supervisor.run_until(lambda: None)
    assert [event.fields["code"] for event in ledger.events()] == [2]


@pytest.mark.slow
def test_sink_that_cannot_run_is_given_up_and_the_run_continues(supervisor, ledger, monkeypatch):
    """Nothing has written its `config.toml` either."""
    starts, start = [], ModuleProcess.start

    def counted(process: ModuleProcess) -> None:
        starts.append(process.module)
        start(process)

    monkeypatch.setattr(ModuleProcess, "start", counted)

    def given_up() -> str | None:
        kinds = [event.kind for event in ledger.events()]
        return "given up" if "sink_given_up" in kinds else None

    with supervisor:
        supervisor.start("sink-prometheus")
        assert supervisor.run_until(given_up) == "given up"
        supervisor.start("sink-prometheus")  # as the next phase does
        assert supervisor.run_until(lambda: "and on it goes") == "and on it goes"
        assert starts == ["sink-prometheus"]
        assert ledger.value(GIVEN_UP) == ["sink-prometheus"]
    assert [event.kind for event in ledger.events()] == ["sink_given_up", "module_died"], "newest first"
