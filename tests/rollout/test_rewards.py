"""A reward that is no number is an error that names its task, in process and over the wire, and never a reward of 0."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession
from msgspec.structs import replace
from worker_bench import Bench

from quartet.access.token import bearer
from quartet.env.client import RemoteEnvPool
from quartet.env.environment.bandit import BanditEnv
from quartet.env.host import EnvHost
from quartet.env.protocol import ObservationData
from quartet.env.reward import with_sound_reward
from quartet.env.session_pool import SessionPool
from quartet.errors import RewardError
from quartet.report.totals import status_counts
from quartet.types import Observation, StepResult, Task

TOKEN = "token-of-a-test"
NO_NUMBERS = [math.nan, math.inf, -math.inf, None, "a lot", [1.0]]


class OddBandit(BanditEnv):
    """A bandit with a reward function of its own."""

    reward: Any = 0.0

    async def step(self, action: str) -> StepResult:
        if isinstance(self.reward, Exception):
            raise self.reward
        return replace(await super().step(action), reward=self.reward)


def odd_pool(sessions: int) -> SessionPool:
    return SessionPool(lambda: OddBandit(Counter()), sessions)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch):
    """Every bandit answers with this reward; an exception is raised."""
    return lambda reward: monkeypatch.setattr(OddBandit, "reward", reward)


def left(request, index):
    return "click left [1]"


def bench_with(tmp_path, pool) -> Bench:
    bench = Bench(tmp_path, left, pool=pool)
    bench.admit(seed=3)
    return bench


def finding(bench: Bench) -> str:
    (event,) = [event for event in bench.ledger.events() if event.kind == "rollout_final"]
    return event.fields["error"]


@pytest.mark.parametrize("reward", [*NO_NUMBERS, RewardError("the grader answered nonsense")])
async def test_in_process(tmp_path, odd, reward):
    odd(reward)
    bench = bench_with(tmp_path, odd_pool(1))
    assert await bench.worker.run_queued() == bench.recipe.rollout.max_attempts
    assert status_counts(bench.ledger) == {"error_reward": 1}
    assert "bandit/fixed, seed 3" in finding(bench) or "the grader" in finding(bench)


@pytest.mark.parametrize("reward", [*NO_NUMBERS, RewardError("the grader answered nonsense")])
async def test_over_the_wire(tmp_path, odd, reward):
    odd(reward)
    pool = odd_pool(2)
    host = EnvHost(pool, name="bandit", capacity=2, token=TOKEN)
    await host.start()
    remote = RemoteEnvPool(lambda: [host.url], 1, token=TOKEN)
    try:
        bench = bench_with(tmp_path, remote)
        assert await bench.worker.run_queued() == bench.recipe.rollout.max_attempts
        assert status_counts(bench.ledger) == {"error_reward": 1}
        assert "bandit/fixed, seed 3" in finding(bench) or "the grader" in finding(bench)
    finally:
        await remote.close()
        await host.stop()


async def test_the_host_names_the_error_by_a_code_of_its_own(odd):
    odd(math.nan)
    host = EnvHost(odd_pool(1), name="bandit", capacity=1, token=TOKEN)
    await host.start()
    try:
        async with ClientSession(headers=bearer(TOKEN)) as http, http.ws_connect(f"{host.url}/ws") as ws:
            await ws.send_json({"type": "reset", "data": {"env": "bandit", "family": "fixed", "seed": 3}})
            await ws.receive_json(timeout=60)
            await ws.send_json({"type": "step", "data": {"action": "click left [1]"}})
            answer = await ws.receive_json(timeout=60)
    finally:
        await host.stop()
    assert (answer["type"], answer["data"]["code"]) == ("error", "REWARD_ERROR")
    assert answer["data"]["message"].startswith("the reward of bandit/fixed, seed 3, is nan: not a finite number")


def test_a_foreign_host_that_writes_null_for_a_reward_gives_no_zero():
    step = ObservationData(observation=Observation(goal="", text=""), reward=None, done=True).step_result()
    assert math.isnan(step.reward)


@pytest.mark.parametrize("reward", [1, True, np.float32(0.5), np.float64(0.25)])
async def test_any_number_is_one(tmp_path, odd, reward):
    odd(reward)
    bench = bench_with(tmp_path, odd_pool(1))
    assert await bench.worker.run_queued() == 1
    assert status_counts(bench.ledger) == {"completed": 1}


@pytest.mark.parametrize("parts", [{"a": 1.0, "b": 1.0}, {"a": math.nan}, {"a": math.inf}])
def test_parts_that_do_not_sum_to_the_reward_are_an_error(parts):
    step = StepResult(observation=Observation(goal="", text=""), reward=1.0, terminated=True, rewards=parts)
    with pytest.raises(RewardError, match="its parts are"):
        with_sound_reward(step, Task(env="bandit", family="fixed", seed=3))


def test_parts_that_sum_to_the_reward_travel_with_it():
    step = StepResult(
        observation=Observation(goal="", text=""), reward=0.3, terminated=True, rewards={"a": 0.1, "b": 0.2}
    )
    assert with_sound_reward(step, Task(env="bandit", family="fixed", seed=3)) == step
    assert ObservationData.of_step(step).step_result() == step
