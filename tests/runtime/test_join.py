"""Members of a run: modules join and leave while it goes on, also on machines whose clocks are wrong."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from wrong_clock import join_with_a_wrong_clock

from benchmarks.bandit import bandit_recipe
from quartet.access.token import run_token
from quartet.errors import ConfigError, SetupError
from quartet.ledger import Ledger
from quartet.ledger.modules import LIVE_SECONDS
from quartet.ledger.serving import served_versions
from quartet.recipe.file import to_toml
from quartet.rollout.members import share_of
from quartet.runtime.check.recipe import check_hosts
from quartet.runtime.join import join_run
from quartet.telemetry.presence import Presence
from quartet.types import MAIN
from quartet.types.phase import ENDED, FINISHED
from tests.live_runs import promises_hold, slow_learner, train_while
from tests.warm_process import start_warm

TEN_MINUTES = 600.0


@contextmanager
def joined(run_dir: Path, role: str, *, clock_ahead_seconds: float = 0.0) -> Iterator[BaseProcess]:
    """A process that joins the run, whose wall clock is wrong by `clock_ahead_seconds`."""
    log = run_dir.with_name("joined.log")
    process = start_warm(log, join_with_a_wrong_clock, run_dir, role, clock_ahead_seconds)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def end(process: BaseProcess) -> None:
    """Ask a module to leave, and wait for its end."""
    process.terminate()
    process.join(60)
    assert process.exitcode == 0


def members(ledger: Ledger, role: str) -> list[str]:
    return [member.module for member in ledger.modules.members(role)]


@pytest.mark.slow
def test_modules_with_wrong_clocks_join_work_and_leave(tmp_path: Path, bandit_policy: Path) -> None:
    """Leases of half a minute would end at once, or never, if any comparison used a process's own wall clock."""
    run_dir, recipe = tmp_path / "run", slow_learner(bandit_policy, 10_000, rollout={"lease_seconds": 30.0})

    def act(ledger: Ledger, wait: Callable[[Callable[[], object]], object]) -> None:
        with ExitStack() as stack:
            early = stack.enter_context(joined(run_dir, "worker", clock_ahead_seconds=TEN_MINUTES))
            late = stack.enter_context(joined(run_dir, "worker", clock_ahead_seconds=-TEN_MINUTES))
            host = stack.enter_context(joined(run_dir, "env", clock_ahead_seconds=TEN_MINUTES))
            wait(lambda: members(ledger, "worker") == ["worker", "worker-2", "worker-3"])
            wait(lambda: members(ledger, "env") == ["env", "env-2"])
            wait(lambda: {f"worker-{early.pid}", f"worker-{late.pid}"} <= workers_of_finished_rollouts(ledger))
            step = ledger.batches.train_step()
            wait(lambda: ledger.batches.train_step() >= step + 3)
            assert not [event for event in ledger.events(1000) if event.kind == "lease_expired"]
            end(early)
            wait(lambda: len(members(ledger, "worker")) == 2)
            host.kill()  # its rollouts are tried again at the other host
            step = ledger.batches.train_step()
            wait(lambda: ledger.batches.train_step() >= step + 2)

    promises_hold(run_dir, train_while(run_dir, recipe, act))


@pytest.mark.campaign
def test_an_engine_joins_serves_and_leaves_without_a_lost_request(tmp_path: Path, bandit_policy: Path) -> None:
    run_dir, recipe = tmp_path / "run", slow_learner(bandit_policy, 10_000, rollout={"lease_seconds": 30.0})

    def act(ledger: Ledger, wait: Callable[[Callable[[], object]], object]) -> None:
        with joined(run_dir, "engine", clock_ahead_seconds=-TEN_MINUTES) as engine:
            wait(lambda: engines_that_serve(ledger) == {"engine", "engine-2"})
            step = ledger.batches.train_step()
            wait(lambda: ledger.batches.train_step() >= step + 3)
            end(engine)
        assert members(ledger, "engine") == ["engine"]
        step = ledger.batches.train_step()
        wait(lambda: ledger.batches.train_step() >= step + 2)
        wait(ledger.policies.latest_is_settled)
        assert not [event for event in ledger.events(1000) if event.kind == "lease_expired"]

    promises_hold(run_dir, train_while(run_dir, recipe, act))


def engines_that_serve(ledger: Ledger) -> set[str]:
    with ledger.read() as connection:
        return set(served_versions(connection, MAIN))


def workers_of_finished_rollouts(ledger: Ledger) -> set[str]:
    with ledger.read() as connection:
        return set(connection.exec_driver_sql("SELECT worker FROM rollouts WHERE state = 'finished'").scalars())


def test_a_run_that_is_not_active_cannot_be_joined(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not active"):
        join_run(tmp_path, "worker")


@pytest.mark.parametrize("phase", [ENDED, FINISHED])
def test_an_ended_run_whose_token_was_made_again_cannot_be_joined(tmp_path: Path, phase: str) -> None:
    (tmp_path / "config.toml").write_text(to_toml(bandit_recipe(Path("unused"))))
    run_token(tmp_path)
    with closing(Ledger.create(tmp_path)) as ledger:
        ledger.enter_phase(phase)
    with pytest.raises(SetupError, match="is not active"):
        join_run(tmp_path, "worker")


def test_a_joined_module_has_the_connections_of_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.toml").write_text(to_toml(bandit_recipe(Path("unused"))))
    run_token(tmp_path)
    Ledger.create(tmp_path).close()
    opened: list[str] = []

    def module(name: str, run_dir: Path) -> int:
        files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        opened.extend(file.name for file in files if file.parent == run_dir)
        with closing(Ledger.open(run_dir)) as ledger:
            Presence(ledger.modules, name)
            assert members(ledger, "worker") == ["worker-2"]
        return 0

    monkeypatch.setattr("quartet.runtime.join.run_module", module)
    monkeypatch.setattr("quartet.runtime.join._end_with_the_run", lambda *_: None)  # it would end this process
    assert join_run(tmp_path, "worker") == 0 and opened == []
    with closing(Ledger.open(tmp_path)) as ledger:
        assert members(ledger, "worker") == []


def test_a_second_host_of_the_same_machines_is_refused(tmp_path: Path) -> None:
    guests = {"name": "osworld", "addresses": ["http://127.0.0.1:5000"], "sessions": 1}
    recipe = bandit_recipe(Path("unused"), env=guests)
    (tmp_path / "config.toml").write_text(to_toml(recipe))
    (tmp_path / "token").write_text("secret")
    check_hosts(recipe, 1)
    with pytest.raises(ConfigError, match="would use the same ones"):
        join_run(tmp_path, "env")


def test_a_module_is_a_member_while_it_sends_heartbeats(tmp_path: Path) -> None:
    now = [1000.0]
    with closing(Ledger.create(tmp_path / "run", clock=lambda: now[0])) as ledger:
        for module, capacity in (("env", 4), ("env-2", 8), ("engine", 0)):
            Presence(ledger.modules, module, url=f"http://{module}", capacity=capacity, interval_seconds=0).beat()
        assert {member.module: member.capacity for member in ledger.modules.members("env")} == {"env": 4, "env-2": 8}
        now[0] += LIVE_SECONDS / 2
        Presence(ledger.modules, "env", interval_seconds=0).beat()
        now[0] += LIVE_SECONDS / 2 + 1
        assert ledger.modules.expire() == ["engine", "env-2"]
        assert ledger.modules.expire() == []
        assert members(ledger, "env") == ["env"]
        Presence(ledger.modules, "env-2", interval_seconds=0).beat()
        assert members(ledger, "env") == ["env", "env-2"]
        ledger.modules.leave("env")
        assert members(ledger, "env") == ["env-2"]
        ledger.modules.end_all()
        assert members(ledger, "env") == []


def test_names_of_modules_that_join_are_new(tmp_path: Path) -> None:
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        names = [ledger.modules.join("worker", ["worker", "worker-2"]) for _ in range(2)]
        assert names == ["worker-3", "worker-4"] and members(ledger, "worker") == []
        assert ledger.modules.join("engine", ["engine"]) == "engine-2"


def test_an_engine_that_joined_is_waited_for_from_its_first_url_until_it_leaves(tmp_path: Path) -> None:
    with closing(Ledger.create(tmp_path / "run")) as ledger:
        ledger.policies.register_initial("policies/0")
        ledger.policies.mark_settled(0, serving=0)
        assert ledger.policies.latest_is_settled()
        joined = ledger.modules.join("engine", ["engine"])
        assert ledger.policies.latest_is_settled(), "it has not started"
        Presence(ledger.modules, joined)
        assert ledger.policies.latest_is_settled(), "it reads its weights, and gets no requests"
        Presence(ledger.modules, joined, url="http://engine-2")
        assert not ledger.policies.latest_is_settled()
        ledger.modules.leave(joined)
        assert ledger.policies.latest_is_settled()


@pytest.mark.parametrize(("sessions", "count"), [(16, 1), (16, 3), (2, 3), (0, 2), (7, 4)])
def test_shares_sum_to_all_sessions_and_differ_by_one(sessions: int, count: int) -> None:
    modules = {f"worker-{n}" for n in range(count)}
    shares = [share_of(module, modules, sessions) for module in modules]
    assert sum(shares) == sessions and max(shares) - min(shares) <= 1
