"""Rewards in child processes: what fails is an error of its own case, and the next case is scored."""

import asyncio
import math
import os
import resource
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from quartet.config import Env, Reward
from quartet.env import make_environment, make_pool
from quartet.env.rewards.base import Case
from quartet.env.scoring.limited import limited
from quartet.env.scoring.scorer import Scorer
from quartet.errors import ConfigError, RewardError, SetupError
from quartet.types import Message
from tests.waiting import until

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _functions(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))


def case(response: str, **row: Any) -> Case:
    return Case(row={"solution": "4"} | row, prompt=[Message("user", "2 + 2")], response=response, answer=response)


@asynccontextmanager
async def scorer(function: str, **settings: Any):
    choice = Reward.model_validate({"name": f"reward_functions:{function}", "timeout_seconds": 2.0} | settings)
    one = Scorer(choice)
    try:
        await one.start()
        yield one
    finally:
        await one.close()


FAILURES = {
    "sleep": "did not end within 2 s",
    "exit": "ended its process with exit status 3",
    "kill": "was ended by SIGKILL",
    "allocate": "needed more than 1000 MB",
    "nan": "returned nan, which is not finite",
    "component": "is not finite",
    "none": "returned None, which is neither a number nor a dict of numbers",
    "text": "returned '1.0', which is neither a number nor a dict of numbers",
    "nothing": "returned no components",
    "raise": r"raised ValueError: boom \(.*reward_functions.py:\d+, in misbehaving\)",
}


async def test_every_failure_is_an_error_and_the_next_case_is_scored():
    async with scorer("misbehaving", max_memory_megabytes=1000, weight=2.0, bonus=0.25) as one:
        for response, message in FAILURES.items():
            with pytest.raises(RewardError, match=message):
                await one.score(case(response))
        assert await one.score(case("4")) == {"right": 2.0, "bonus": 0.5}
        assert await one.score(case("5")) == {"right": 0.0, "bonus": 0.5}


async def test_coroutines_run_at_the_same_time_and_one_that_hangs_does_not_fail_the_others():
    async with scorer("waits") as one:
        calls = (one.score(case(text)) for text in ("meet", "met", "forever"))
        met = await asyncio.gather(*calls, return_exceptions=True)
        assert met[:2] == [{"waits": 1.0}] * 2
        assert isinstance(met[2], RewardError)
        held = await asyncio.gather(*(one.score(case(text)) for text in ("deaf", "now")), return_exceptions=True)
        assert isinstance(held[0], RewardError) and "was killed" in str(held[0])
        assert held[1] == {"waits": 1.0}


async def test_a_batch_that_ends_the_process_is_repeated_case_by_case():
    async with scorer("exits_in_company") as one:
        scores = await asyncio.gather(*(one.score(case(text)) for text in ("a", "exit", "b")), return_exceptions=True)
    assert isinstance(scores[1], RewardError)
    # The first case was alone: a batch is what waits when a process is free.
    assert [scores[0], scores[2]] == [{"exits_in_company": 1.0}] * 2


async def test_an_exception_of_a_batch_is_an_error_of_the_cases_that_cause_it_only():
    async with scorer("raises_in_company") as one:
        calls = (one.score(case(text)) for text in ("1", "2", "n/a", "3"))
        scores = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(scores[2], RewardError) and "ValueError" in str(scores[2])
    assert [*scores[:2], scores[3]] == [{"raises_in_company": float(number)} for number in (1, 2, 3)]


async def test_a_value_of_a_batch_that_no_float_can_hold_is_an_error_of_its_case():
    async with scorer("pairs") as one:
        scores = await asyncio.gather(*(one.score(case(text)) for text in ("pair", "4")), return_exceptions=True)
    assert isinstance(scores[0], RewardError) and "a Tensor with 2 elements cannot be converted" in str(scores[0])
    assert scores[1] == {"pairs": 1.0}


async def test_after_a_failed_batch_cases_that_nobody_waits_for_are_not_scored(tmp_path):
    record = tmp_path / "record"
    record.touch()
    async with scorer("hangs_in_company", record=str(record)) as one:
        waiting = [asyncio.create_task(one.score(case(text))) for text in "abcd"]
        await until(lambda: "abcd" in record.read_text())
        for task in waiting[1:3]:
            task.cancel()
        assert [await waiting[0], await waiting[3]] == [{"hangs_in_company": 1.0}] * 2
    assert record.read_text().split() == ["abcd", "a", "d"]


@pytest.mark.parametrize(
    ("function", "row"),
    [
        ("trl_style", {}),
        ("trl_style", {"prompt": [{"role": "user", "content": "2 + 2"}]}),
        ("verl_style", {"data_source": "test", "reward_model": {"ground_truth": "4"}}),
    ],
)
async def test_functions_of_trl_and_verl_run_unchanged(function, row):
    async with scorer(function) as one:
        scores = await asyncio.gather(*(one.score(case(text, **row)) for text in ("4", "5")))
    assert scores == [{function: 1.0}, {function: 0.0}]


async def test_a_process_that_ended_is_started_again(tmp_path):
    async with scorer("exits_once", processes=2) as one:
        with pytest.raises(RewardError, match="exit status 1"):
            await one.score(case(str(tmp_path / "first")))
        assert await one.score(case(str(tmp_path / "first"))) == {"exits_once": 1.0}


async def test_a_part_of_another_module_and_a_wrong_number_of_values():
    async with scorer("Length") as one:
        assert await one.score(case("four")) == {"Length": 4.0}
    async with scorer("too_few") as one:
        with pytest.raises(RewardError, match="returned 0 values for 1 responses"):
            await one.score(case("4"))


async def test_unexpected_errors_end_no_worker(tmp_path):
    async with scorer("Forgets") as one:
        with pytest.raises(RewardError, match="raised OverflowError"):
            await one.score(case("4", large=10**20))
        with pytest.raises(RewardError, match="returned 0 scores for 1 responses"):
            await one.score(case("forget"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(RewardError, match="Too many open files"):
                await one.score(case("4"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await one.score(case("4")) == {"forgets": 1.0}


async def test_a_setting_that_the_function_does_not_read_is_an_error_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"no parameter 'recrod'.*record"):
        async with scorer("hangs_in_company", recrod="x"):
            pass


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("absent", ConfigError, "no attribute 'absent' -> write module:function"),
        ("limit", ConfigError, "is not a callable object"),
    ],
)
async def test_a_reward_that_cannot_be_loaded_is_an_error_of_the_recipe_or_of_the_setup(function, error, message):
    with pytest.raises(error, match=message):
        async with scorer(function):
            pass


async def test_the_limit_for_loading_a_reward_is_that_of_the_start_and_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{number}"}}\n' for number in range(60)))
    own = {"data": str(tmp_path / "rows.jsonl"), "reward": "reward_functions:LoadsLong"}
    env = Env.model_validate({"name": "dataset", "start_timeout_seconds": 0.5} | own)
    pool = make_pool(env)
    with pytest.raises(SetupError, match=r"did not end within 0\.5 s.*\n.*raise env\.start_timeout_seconds"):
        await pool.acquire()
    await pool.close()
    with pytest.raises(SetupError, match=r"did not end within 0\.5 s"):
        await asyncio.to_thread(make_environment(env).load_code, env)


KILLED = """
import asyncio, psutil
from quartet.config import Reward
from quartet.env.rewards.base import Case
from quartet.env.scoring.scorer import Scorer
from quartet.types import Message

async def hang():
    scorer = Scorer(Reward(name="reward_functions:misbehaving"))
    await scorer.start()
    print(psutil.Process().children()[0].pid, flush=True)
    await scorer.score(Case(row={"solution": ""}, prompt=[Message("user", "")], response="sleep", answer=""))

asyncio.run(hang())
"""


def test_a_reward_that_hangs_ends_with_a_killed_environment():
    with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        child = psutil.Process(int(host.stdout.readline()))
        host.kill()
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_no_process_is_left():
    before = {child.pid for child in psutil.Process().children()}
    async with scorer("misbehaving", processes=2):
        assert len({child.pid for child in psutil.Process().children()} - before) == 2
    assert {child.pid for child in psutil.Process().children()} <= before


async def test_the_score_of_a_dict_of_verl_is_the_whole_reward():
    async with scorer("verl_dict") as one:
        row = {"reward_model": {"ground_truth": "4"}}
        scores = await asyncio.gather(*(one.score(case(text, **row)) for text in ("4", "5")))
    assert scores == [{"verl_dict": 1.0}, {"verl_dict": -1.0}]


def test_a_computation_has_limits_of_its_own():
    assert limited(lambda: 0.5, 1) == 0.5
    assert math.isnan(limited(lambda: math.nan, 1) or 0.0), "no fault of the response, so an error instead of a zero"
    for too_much in (lambda: 9**9**9, sys.exit, lambda: os.write(1, bytes(1 << 60)), lambda: os._exit(3)):
        assert limited(too_much, 1) is None
    with pytest.raises(RewardError, match=r"raised ValueError: could not convert.*test_scorer\.py"):
        limited(lambda: float("x"), 1)


async def test_a_confined_reward_scores():
    one = Scorer(Reward.model_validate({"name": "exact_match", "column": "solution"}), confined=True)
    try:
        await one.start()
        assert await one.score(case("4")) == {"exact_match": 1.0}
    finally:
        await one.close()


LOGS = """
import logging, sys
from quartet.env.scoring.limited import limited

def warns():
    logging.getLogger("library").warning("a library of rewards logs")
    print("and prints")
    return 0.5

print(limited(warns, 1), file=sys.stderr)
"""


def test_output_of_a_limited_computation_is_no_error_where_the_log_is_a_file(tmp_path):
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", LOGS], stdout=log, stderr=log, check=True)
    assert (tmp_path / "log").read_text() == "0.5\n"


WITHIN = """
import asyncio
from quartet.config import Reward
from quartet.env.child_streams import limit_memory
from quartet.env.rewards.base import Case
from quartet.env.scoring.scorer import Scorer
from quartet.types import Message

async def main():
    scorer = Scorer(Reward(name="reward_functions:misbehaving", max_memory_megabytes=1000))
    await scorer.start()
    for response in ("4", "allocate"):
        case = Case(row={"solution": "4"}, prompt=[Message("user", "")], response=response, answer="")
        try:
            print(await scorer.score(case))
        except Exception as error:
            print(error)
    await scorer.close()

limit_memory(400)
asyncio.run(main())
"""


def test_a_reward_of_a_process_with_less_memory_has_the_limit_of_that_process():
    run = subprocess.run([sys.executable, "-c", WITHIN], capture_output=True, text=True, check=True)
    assert "{'right': 1.0, 'bonus': 0.0}\n" in run.stdout
    assert "needed more than 400 MB, the limit of the process that started it" in run.stdout


OUTLIVED = """
import os, time
from quartet.env.scoring.limited import limited

def sleeps():
    os.write(ready, str(os.getpid()).encode())
    time.sleep(600)
    return 1.0

read, ready = os.pipe()
if os.fork():
    print(os.read(read, 20).decode(), flush=True)
    time.sleep(600)
limited(sleeps, 1)
"""


def test_a_limited_computation_ends_with_the_process_that_started_it():
    with subprocess.Popen([sys.executable, "-c", OUTLIVED], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        sleeper = psutil.Process(int(first.stdout.readline()))
        starter = sleeper.parent()
        assert starter is not None
        starter.kill()
        first.kill()
    psutil.wait_procs([sleeper], timeout=60)
    assert not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE
