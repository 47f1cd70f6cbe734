"""A taskset of verifiers, served from its own virtual environment and played by the environment `openenv`."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.errors import ConfigError, EnvError
from quartet.free_port import free_port
from quartet.types import Task

PYTHON = os.environ.get("QUARTET_VERIFIERS_PYTHON", "")
SERVER = Path(__file__).parents[2] / "examples" / "verifiers_server.py"
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON, reason="`make test-adapters` installs verifiers"),
]


@contextmanager
def served(taskset: str) -> Iterator[str]:
    """Give the address of a server of a taskset."""
    port = free_port()
    command = [PYTHON, str(SERVER), f"verifiers_taskset:{taskset}", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(command, env=environment) as server:
        while server.poll() is None:
            try:
                urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            except OSError:
                time.sleep(0.1)
            else:
                break
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served("Sums") as address:
        yield address


def task(seed: int) -> Task:
    return Task(env="openenv", family="episodes", seed=seed)


async def test_the_taskset_s_own_rewards_score_a_response(url):
    env = make_environment(config.Env(name="openenv", url=url)).session()
    for response, reward in (("6", 1.0), ("7", 0.25), ("six", 0.0)):
        seen = await env.reset(task(3))
        assert seen.text == "Add.\n\nWhat is 3 + 3?" and seen.goal == ""
        result = await env.step(response)
        assert result.terminated and result.reward == reward
    training = {(await env.reset(task(seed))).text for seed in range(40)}
    held_out = {(await env.reset(task(1_000_000 + seed))).text for seed in range(40)}
    assert (len(training), len(held_out)) == (18, 2) and training.isdisjoint(held_out)
    with pytest.raises(ConfigError, match="episodes"):
        await env.reset(Task(env="openenv", family="episode", seed=0))
    await env.close()


async def test_a_task_that_gives_no_reward_is_an_error_and_not_0():
    with served("Unscored") as address:
        env = make_environment(config.Env(name="openenv", url=address)).session()
        await env.reset(task(3))
        with pytest.raises(EnvError, match="the reward could not be computed: the task gave no reward"):
            await env.step("3")
        await env.close()


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--limit", "4"], "4 for training and 0 held out"),
        (["--held-out-share", "1"], "0 for training and 20 held out"),
        (["--limit", "0"], "0 for training and 0 held out"),
    ],
)
def test_a_taskset_without_tasks_for_training_or_evaluation_is_refused(options, parts):
    command = [PYTHON, str(SERVER), "verifiers_taskset:Sums", "--port", str(free_port()), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1 and f"verifiers_taskset:Sums has {parts}" in done.stderr


async def test_it_passes_all_checks(url, monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="openenv", sessions=2, url=url, turn_limit=1)
    results = await check_environment(env, range(2), lambda _: None)
    assert [result for result in results if not result.passed] == []
