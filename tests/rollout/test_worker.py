"""The rollout worker on a real ledger: every ending becomes the right status, and every wait is explained."""

import asyncio
import os
import re
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from scripted_engine import ScriptedEngine
from worker_bench import TOKENIZER, Bench

from quartet.engine.base import GenerateRequest, GenerateResult
from quartet.env.base import Env
from quartet.env.client import RemoteEnvPool
from quartet.env.environment.bandit import BanditEnv
from quartet.env.host import EnvHost
from quartet.env.session_pool import SessionPool
from quartet.errors import EngineError, EnvError
from quartet.ledger import AppendOutcome
from quartet.ledger.blob_files import LocalBlobFiles
from quartet.ledger.blobs import LARGEST_IN_DATABASE_BYTES
from quartet.ledger.schema import rollouts, trajectories
from quartet.policy.renderer import Renderer
from quartet.report.alarms import read_alarms
from quartet.report.alarms.announced import Announced
from quartet.report.check import check_ledger
from quartet.report.status import StatusReader
from quartet.report.totals import run_totals, status_counts
from quartet.rollout.client import Model
from quartet.rollout.watch import Watch, WatchedEnv
from quartet.rollout.worker import RolloutWorker
from quartet.telemetry.presence import Presence
from quartet.telemetry.records import read_records
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import read_spans
from quartet.types import MAIN, Observation, Picture, Purpose, RolloutPlan, StepResult, Task
from tests.waiting import until

PHOTOGRAPH = os.urandom(2 * LARGEST_IN_DATABASE_BYTES)


def left(request, index):
    return "click left [1]"


async def test_queued_rollouts_are_run_at_once_and_appended(tmp_path):
    bench = Bench(tmp_path, left)
    group = bench.admit(rollouts=7, turns=2)
    async with bench.running():
        await until(lambda: status_counts(bench.ledger).get("completed") == 7)
        await until(lambda: bench.waits_for() == ("waiting", "queued rollouts"))
    bench.ledger.groups.close(group)
    members = bench.ledger.groups.load(group).members
    assert [member.trajectory.reward for member in members] == [1.0] * 7
    seeds = {call.sampling.seed for member in members for call in member.trajectory.calls}
    assert len(seeds) == 14, "every call of every rollout draws its own random numbers"
    bench.recorder.close()
    metrics = list(read_records(bench.folder, "rollout"))
    assert len(metrics) == 7
    assert {"reset_seconds", "generate_seconds", "step_seconds"} <= metrics[0].keys()
    assert (metrics[0]["status"], metrics[0]["turns"], metrics[0]["family"]) == ("completed", 2, "fixed")


async def test_every_moment_of_a_session_is_a_span(tmp_path):
    bench = Bench(tmp_path, left)
    bench.admit(rollouts=7, turns=2)
    async with bench.running():
        await until(lambda: status_counts(bench.ledger).get("completed") == 7)
    bench.recorder.close()
    spans = read_spans(bench.folder, *run_extent(bench.folder)).spans
    for rollout_id in range(1, 8):
        (whole, *parts) = [span for span in spans if span.trace == f"rollout {rollout_id}.1"]
        names = [span.name for span in parts]
        assert [whole.name, *names] == ["rollout", "reset", "generate", "step", "generate", "step", "append"]
        assert {span.lane for span in parts} == {whole.lane}
        assert all(whole.start <= span.start and span.end <= whole.end + 1e-5 for span in parts)
    for lane in ("session 0", "session 1", "session 2"):
        mine = [span for span in spans if span.lane == lane and span.name in ("wait", "rollout")]
        assert {span.reason for span in mine if span.name == "wait"} == {"an environment session", "a queued rollout"}
        assert all(after.start >= before.end - 1e-5 for before, after in pairwise(mine)), "one thing at a time"


async def test_one_after_the_other_is_the_same_every_time(tmp_path):
    def requests(folder: Path):
        bench = Bench(folder, left)
        bench.admit(rollouts=3, turns=2)
        return bench

    first, second = requests(tmp_path / "a"), requests(tmp_path / "b")
    assert await first.worker.run_queued() == await second.worker.run_queued() == 3
    assert first.engine.requests == second.engine.requests
    assert await first.worker.run_queued() == 0


async def test_evaluation_may_draw_from_a_part_of_the_distribution_and_training_never_does(tmp_path):
    truncated = {"top_k": 5, "top_p": 0.9, "min_tokens": 1}
    bench = Bench(tmp_path, left, sections={"evaluation": truncated}, stop_strings=["]"])
    bench.admit()
    held_out = Task(env="bandit", family="fixed", seed=2_000_000)
    plan = RolloutPlan(
        task=held_out, num_rollouts=1, max_turns=1, purpose=Purpose.EVAL, temperature=0.5, tag="before/sampled"
    )
    bench.ledger.evaluations.admit(plan.tag, iter([plan]))
    assert await bench.worker.run_queued() == 2
    evaluated, trained = sorted((one.sampling for one in bench.engine.requests), key=lambda one: one.temperature)
    assert trained.whole and trained.temperature == 1.0
    assert {name: getattr(evaluated, name) for name in truncated} == truncated
    assert [request.stop_strings for request in bench.engine.requests] == [["]"]] * 2


async def test_environment_failures_are_retried_and_never_a_reward(tmp_path):
    bench = Bench(tmp_path, left)
    bench.admit(fail_rate=1.0)
    assert await bench.worker.run_queued() == 3, "max_attempts"
    assert status_counts(bench.ledger) == {"error_env": 1}
    assert run_totals(bench.ledger).attempts == {"final": 1, "retried": 2}
    for _ in range(bench.recipe.env.sessions):  # every session came back
        await asyncio.wait_for(bench.pool.acquire(), 1)


class Failing(SessionPool):
    """A pool of bandits whose first session cannot be made, and whose first release fails."""

    acquired = released = 0

    async def acquire(self) -> Env:
        self.acquired += 1
        if self.acquired == 1:
            raise EnvError("the browser does not start")
        return await super().acquire()

    async def release(self, env: Env, *, healthy: bool) -> None:
        await super().release(env, healthy=healthy)
        self.released += 1
        if self.released == 1:
            raise EnvError("the page does not close")


async def test_a_failure_of_the_pool_ends_no_run_of_queued_rollouts(tmp_path, caplog):
    bench = Bench(tmp_path, left, pool=Failing(lambda: BanditEnv(Counter()), 1))
    bench.admit()
    assert await bench.worker.run_queued() == 1
    assert status_counts(bench.ledger) == {"completed": 1}
    assert "the browser does not start" in caplog.text and "could not be released: the page" in caplog.text


async def test_a_task_that_the_environment_refuses_is_an_error_of_its_rollout(tmp_path):
    bench = Bench(tmp_path, left)
    bench.admit(family="no such family")
    bench.admit()
    assert await bench.worker.run_queued() == 3 + 1, "max_attempts"
    assert status_counts(bench.ledger) == {"error_env": 1, "completed": 1}


async def test_engine_failures_are_retried_with_the_same_random_numbers(tmp_path):
    bench = Bench(tmp_path, lambda request, index: EngineError("down") if index == 1 else "click left [1]")
    bench.admit(turns=2)
    assert await bench.worker.run_queued() == 2
    assert status_counts(bench.ledger) == {"completed": 1}
    _, failed, retried = bench.engine.requests
    assert (failed.prompt_ids, failed.sampling) == (retried.prompt_ids, retried.sampling)
    assert failed.request_id != retried.request_id


async def test_an_exception_of_the_agent_loop_is_in_the_record_and_others_go_on(tmp_path):
    bench = Bench(tmp_path, lambda request, index: ZeroDivisionError("ours") if index == 0 else "click left [1]")
    bench.admit(rollouts=2)
    async with bench.running():
        await until(lambda: status_counts(bench.ledger) == {"error_agent": 1, "completed": 1})
    with bench.ledger.read() as connection:
        row = connection.execute(sa.select(trajectories).where(trajectories.c.status == "error_agent")).one()
    failed = bench.ledger.store.load(row.blob)
    assert re.fullmatch(r"ZeroDivisionError: ours \(\S+\.py:\d+, in \w+\)", failed.error)
    assert failed.traceback.startswith("Traceback") and failed.traceback.rstrip().endswith("ZeroDivisionError: ours")
    (event,) = [event for event in bench.ledger.events() if event.fields.get("status") == "error_agent"]
    assert event.fields["error"] == row.error == failed.error


@pytest.mark.slow
async def test_a_policy_without_a_valid_action_is_an_alarm_with_an_example(tmp_path):
    """Announced at 100 rollouts and at 200, and over with the first action that can be done."""
    bench = Bench(tmp_path, lambda request, index: "I would rather not" if index < 400 else "click left [1]")
    announced, said = Announced(), []
    for _ in range(4):
        bench.admit(rollouts=60, max_turns=1)
        await bench.worker.run_queued()
        status = StatusReader(bench.folder, bench.ledger, bench.recipe).read()
        alarms = read_alarms(bench.folder, bench.ledger, bench.recipe, status)
        said.append([line for line in announced.lines(alarms) if "valid action" in line])
    assert [len(lines) for lines in said] == [0, 1, 0, 1]
    assert "newest 100" in said[1][0] and "newest 200" in said[3][0]
    assert "'I would rather not'" in said[1][0] and "not an action" in said[1][0] and "`click LABEL [1]`" in said[1][0]
    bench.engine.script = left
    bench.admit(max_turns=1)
    await bench.worker.run_queued()
    (over,) = announced.lines(read_alarms(bench.folder, bench.ledger, bench.recipe, status))
    assert over.startswith("alarm cleared: none of the newest")


async def test_a_lost_lease_is_given_up_quietly(tmp_path):
    bench = Bench(tmp_path, left, lease_seconds=10.0)
    bench.admit()

    def overtaken(request, index):
        """The worker was stopped for a minute; somebody else got the rollout."""
        bench.now += 60
        bench.ledger.rollouts.expire()
        bench.ledger.rollouts.claim("another", 1, 1000.0)
        return "click left [1]"

    bench.engine.script = overtaken
    (lease,) = bench.ledger.rollouts.claim("this", 1, 10.0)
    assert await bench.worker.run_rollout(lease, await bench.pool.acquire()) is None
    assert "lease_lost" in bench.kinds()
    assert run_totals(bench.ledger).attempts == {"superseded": 1}
    assert bench.ledger.statistics.queue_sizes().rollouts["leased"] == 1


async def test_progress_renews_the_lease(tmp_path):
    """Five turns, each almost as long as the lease: it never expires."""
    bench = Bench(tmp_path, left, lease_seconds=0.001, max_turns=5)
    bench.admit(turns=5, delay_seconds=0.001, max_turns=5)
    (lease,) = bench.ledger.rollouts.claim("this", 1, 0.001)

    def slow(request, index):
        bench.now += 0.0009
        assert bench.ledger.rollouts.expire() == 0
        return "click left [1]"

    bench.engine.script = slow
    outcome = await bench.worker.run_rollout(lease, await bench.pool.acquire())
    assert outcome is AppendOutcome.APPENDED
    assert bench.now > lease.deadline


@pytest.mark.parametrize("slow", ["reset", "step"])
async def test_a_request_to_the_environment_that_is_longer_than_the_lease_renews_it(slow, tmp_path):
    async def outlast_the_lease(request: str) -> None:
        for _ in range(5 * (request == slow)):
            await asyncio.sleep(0.05)
            bench.now += 0.009
            assert bench.ledger.rollouts.expire() == 0

    class Slow(BanditEnv):
        async def reset(self, task: Task) -> Observation:
            await outlast_the_lease("reset")
            return await super().reset(task)

        async def step(self, action: str) -> StepResult:
            await outlast_the_lease("step")
            return await super().step(action)

    bench = Bench(tmp_path, left, pool=SessionPool(lambda: Slow(Counter()), 1), lease_seconds=0.01)
    bench.admit()
    (lease,) = bench.ledger.rollouts.claim("this", 1, 0.01)
    outcome = await bench.worker.run_rollout(lease, await bench.pool.acquire())
    assert outcome is AppendOutcome.APPENDED
    assert bench.now > lease.deadline


async def test_a_long_snapshot_is_progress():
    class Storing(BanditEnv):
        async def snapshot(self) -> bytes:
            await until(lambda: len(reports) == 3)
            return b"stored"

        async def restore(self, task: Task, snapshot: bytes) -> Observation:
            raise AssertionError

    reports: list[None] = []
    watch = Watch(lambda: reports.append(None), poll_seconds=0.01)
    assert await WatchedEnv(Storing(Counter()), watch).snapshot() == b"stored"


async def test_a_stopped_worker_gives_its_rollouts_back(tmp_path):
    bench = Bench(tmp_path, left)
    bench.admit(rollouts=3, delay_seconds=600)
    async with bench.running():
        await until(lambda: bench.ledger.statistics.queue_sizes().rollouts["leased"] == 3)
        assert bench.waits_for() == ("running 3 rollouts", "")
    assert bench.ledger.statistics.queue_sizes().rollouts["queued"] == 3
    for _ in range(bench.recipe.env.sessions):
        await asyncio.wait_for(bench.pool.acquire(), 1)


class Crowded:
    """Members of a run whose engines are full at first."""

    engines_have_room = False

    async def follow(self) -> int:
        return 3


async def test_no_rollout_begins_while_the_engines_are_full(tmp_path):
    bench = Bench(tmp_path, left)
    members: Any = Crowded()
    models = {MAIN: Model(bench.engine, Renderer(TOKENIZER))}
    presence = Presence(bench.ledger.modules, "worker", interval_seconds=0.0)
    bench.worker = RolloutWorker(bench.recipe, bench.ledger, models, bench.pool, bench.recorder, presence, members)
    bench.admit(rollouts=3)
    async with bench.running():
        await until(lambda: bench.waits_for() == ("waiting", "memory of the engines"))
        assert bench.ledger.statistics.queue_sizes().rollouts["queued"] == 3
        members.engines_have_room = True
        await until(lambda: status_counts(bench.ledger).get("completed") == 3)
        bench.admit(delay_seconds=600)
        await until(lambda: bench.waits_for() == ("running 1 rollouts", ""))
        members.engines_have_room = False
        await until(lambda: bench.waits_for()[0] == "running 1 rollouts; further ones wait for memory of the engines")


async def test_waiting_for_a_silent_engine_is_explained(tmp_path):
    bench = Bench(tmp_path, left)

    class Silent(ScriptedEngine):
        async def generate(self, request):
            await asyncio.Event().wait()
            raise AssertionError

    bench.worker = RolloutWorker(
        bench.recipe,
        bench.ledger,
        {MAIN: Model(Silent(TOKENIZER, left), Renderer(TOKENIZER))},
        bench.pool,
        bench.recorder,
        Presence(bench.ledger.modules, "worker", interval_seconds=0.0),
    )
    bench.admit(rollouts=2)
    async with bench.running():
        await until(lambda: bench.waits_for() == ("waiting", "the engine"))
        assert bench.ledger.statistics.queue_sizes().rollouts["leased"] == 2


async def test_waiting_for_a_session_is_explained_and_costs_no_attempt(tmp_path):
    bench = Bench(tmp_path, left)
    taken = [await bench.pool.acquire() for _ in range(3)]
    bench.admit()
    async with bench.running():
        await until(lambda: bench.waits_for() == ("waiting", "an environment session"))
        assert bench.ledger.statistics.queue_sizes().rollouts["queued"] == 1
        for env in taken:
            await bench.pool.release(env, healthy=True)
        await until(lambda: status_counts(bench.ledger) == {"completed": 1})


class Noted(BanditEnv):
    """A bandit that notes its resets."""

    resets: ClassVar[list[int]] = []

    async def reset(self, task: Task) -> Observation:
        self.resets.append(task.seed)
        return await super().reset(task)


class Gated(ScriptedEngine):
    """An engine that answers once `doors` is open."""

    doors = asyncio.Event()
    asked = 0

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self.asked += 1
        await self.doors.wait()
        return await super().generate(request)


async def test_sessions_beyond_the_running_rollouts_reset_the_next_ones_ahead(tmp_path):
    sessions = SessionPool(lambda: Noted(Counter()), 3)
    bench = Bench(tmp_path, left, engine=Gated, pool=sessions, max_running=1, lease_seconds=1.0)
    Noted.resets.clear()
    for seed in range(4):
        bench.admit(seed=seed, turns=2)

    def deadlines() -> list[float]:
        leased = sa.select(rollouts.c.deadline).where(rollouts.c.state == "leased")
        with bench.ledger.read() as connection:
            return list(connection.execute(leased).scalars())

    async with bench.running():
        await until(lambda: bench.engine.asked == 1 and len(Noted.resets) == 3)
        bench.now += 5.0
        await until(lambda: min(deadlines()) > bench.now)  # each lease of one second is renewed
        assert len(deadlines()) == 3 and bench.engine.asked == 1, "one runs, and two wait for its end"
        Gated.doors.set()
        await until(lambda: status_counts(bench.ledger) == {"completed": 4})
    assert Noted.resets == [0, 1, 2, 3]


@pytest.mark.slow
async def test_a_rollout_that_waits_for_its_turn_for_longer_than_a_client_may_be_silent_keeps_its_session(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(Gated, "doors", asyncio.Event())
    Noted.resets.clear()
    sessions = SessionPool(lambda: Noted(Counter()), 3)
    host = EnvHost(sessions, name="bandit", capacity=3, token="t", idle_timeout_seconds=2.0)
    await host.start()
    pool = RemoteEnvPool(lambda: [host.url], 2, token="t", ping_seconds=0.1)
    settings = {"env": {"name": "bandit", "sessions": 2}}
    bench = Bench(tmp_path, left, engine=Gated, pool=pool, sections=settings, max_running=1)
    for seed in range(2):
        bench.admit(seed=seed)
    async with bench.running():
        await until(lambda: bench.engine.asked == 1 and len(Noted.resets) == 2)
        silent = RemoteEnvPool(lambda: [host.url], 1, token="t")
        await (await silent.acquire()).reset(Task(env="bandit", family="fixed", seed=2))
        await until(lambda: host.sessions < 3)
        Gated.doors.set()
        await until(lambda: status_counts(bench.ledger) == {"completed": 2})
    assert sorted(Noted.resets) == [0, 1, 2], "each episode began once"
    await silent.close()
    await pool.close()
    await host.stop()


async def test_a_rollout_that_waits_for_its_turn_leaves_its_session_when_its_group_closes(tmp_path, monkeypatch):
    monkeypatch.setattr(Gated, "doors", asyncio.Event())
    Noted.resets.clear()
    bench = Bench(tmp_path, left, engine=Gated, pool=SessionPool(lambda: Noted(Counter()), 2), max_running=1)
    bench.admit(seed=0)
    async with bench.running():
        await until(lambda: bench.engine.asked == 1)
        unwanted = bench.admit(seed=1)
        await until(lambda: Noted.resets == [0, 1])
        bench.admit(seed=2)
        bench.ledger.groups.close(unwanted)
        await until(lambda: Noted.resets == [0, 1, 2])
        Gated.doors.set()
        await until(lambda: status_counts(bench.ledger).get("completed") == 2)
    assert bench.engine.asked == 2


async def test_a_reset_ahead_that_fails_is_a_failure_of_its_own_rollout(tmp_path):
    bench = Bench(tmp_path, left, max_running=1)
    bench.admit(fail_rate=1.0)
    bench.admit(turns=2)
    async with bench.running():
        await until(lambda: status_counts(bench.ledger) == {"error_env": 1, "completed": 1})


class Photographed(BanditEnv):
    """A bandit with a picture of every page, too large for the database."""

    async def reset(self, task: Task) -> Observation:
        return replace(await super().reset(task), pictures=[Picture(data=PHOTOGRAPH)])

    async def step(self, action: str) -> StepResult:
        result = await super().step(action)
        return replace(result, observation=replace(result.observation, pictures=[Picture(data=PHOTOGRAPH)]))


async def test_a_rollout_too_large_to_be_stored_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("quartet.ledger.blobs.LARGEST_BLOB_BYTES", len(PHOTOGRAPH) - 1)
    bench = Bench(tmp_path, left, pool=SessionPool(lambda: Photographed(Counter()), 1))
    bench.admit(turns=2)
    assert await bench.worker.run_queued() == 1
    assert status_counts(bench.ledger) == {"error_agent": 1}
    record = bench.ledger.trajectories.load_final(1)
    assert record is not None and f"{len(PHOTOGRAPH)} bytes cannot be stored" in record.error
    assert len(record.calls) == 2 and check_ledger(bench.ledger).findings == []


async def test_pictures_are_encoded_beside_the_event_loop(tmp_path, monkeypatch):
    put, threads = LocalBlobFiles.put, []

    def watched(self, digest: str, data: bytes) -> None:
        threads.append(threading.current_thread())
        put(self, digest, data)

    monkeypatch.setattr(LocalBlobFiles, "put", watched)
    bench = Bench(tmp_path, left, pool=SessionPool(lambda: Photographed(Counter()), 1))
    bench.admit(turns=2)
    assert await bench.worker.run_queued() == 1
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
    assert check_ledger(bench.ledger).findings == [] and check_ledger(bench.ledger).blobs == 2
