"""Attempts that continue from the calls of an earlier attempt, of which a killed worker or a failure left no record."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path

from msgspec.structs import replace
from worker_bench import Bench

from benchmarks.lost_generation import lost_generation
from quartet.env.environment.bandit import BanditEnv
from quartet.env.session_pool import SessionPool
from quartet.errors import EngineError
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals, status_counts
from quartet.telemetry.records import read_records
from quartet.types import Observation, Task

TURNS = 4


def asked(bench: Bench) -> list[str]:
    """Return the attempt and the call of each request to the engine."""
    return [request.request_id.partition("/")[2] for request in bench.engine.requests]


def is_killed(folder: Path) -> None:
    """Run the rollout in this process, which kills itself at the third generation."""

    def script(request, index):
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return "click left [1]"

    bench = Bench(folder, script)
    bench.admit(turns=TURNS)
    asyncio.run(bench.worker.run_queued())


def test_the_attempt_after_a_killed_worker_samples_only_the_calls_that_are_missing(tmp_path):
    program = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_continued as test; "
    program += f"from pathlib import Path; test.is_killed(Path({str(tmp_path)!r}))"
    killed = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    bench = Bench(tmp_path, lambda request, index: "click left [1]")
    bench.now += 1e6
    assert bench.ledger.rollouts.expire() == 1
    assert lost_generation(bench.ledger).waited == 0, "the journal keeps it for the next attempt"
    assert asyncio.run(bench.worker.run_queued()) == 1
    assert asked(bench) == ["1.2/2", "1.2/3"]
    assert status_counts(bench.ledger) == {"completed": 1} and run_totals(bench.ledger).attempts == {"final": 1}
    record = bench.ledger.trajectories.load_final(1)
    assert record is not None and (len(record.calls), len(record.turns), record.reward) == (TURNS, TURNS, 1.0)
    bench.recorder.close()
    (metrics,) = read_records(bench.folder, "rollout")
    assert (metrics["continued_calls"], metrics["diverged"]) == (2, False)
    assert lost_generation(bench.ledger).waited == 0
    assert check_ledger(bench.ledger, max_lag=9).findings == []
    assert bench.ledger.journals.drop_finished() == 2 and not list((bench.folder / "journals").iterdir())


async def test_a_retry_after_a_failure_continues_too(tmp_path):
    """The engine fails at the third generation of the first attempt, and at the first one of the second."""
    fails = {2, 3}
    bench = Bench(tmp_path, lambda request, index: EngineError("down") if index in fails else "click left [1]")
    bench.admit(turns=TURNS)
    assert await bench.worker.run_queued() == 3
    assert asked(bench) == ["1.1/0", "1.1/1", "1.1/2", "1.2/2", "1.3/2", "1.3/3"]
    assert status_counts(bench.ledger) == {"completed": 1}


async def test_an_environment_that_responds_differently_gets_new_samples(tmp_path):
    """Each reset shows another page, so the calls of the first attempt answer other prompts."""
    resets = count()

    class Moody(BanditEnv):
        async def reset(self, task: Task) -> Observation:
            return replace(await super().reset(task), text=f"page {next(resets)}")

    bench = Bench(
        tmp_path,
        lambda request, index: EngineError("down") if index == 2 else "click left [1]",
        pool=SessionPool(lambda: Moody(Counter()), 1),
    )
    bench.admit(turns=3)
    assert await bench.worker.run_queued() == 2
    assert asked(bench) == ["1.1/0", "1.1/1", "1.1/2", "1.2/0", "1.2/1", "1.2/2"]
    record = bench.ledger.trajectories.load_final(1)
    assert record is not None and record.turns[0].observation.text == "page 1"
    bench.recorder.close()
    retried, final = read_records(bench.folder, "rollout")
    assert (retried["status"], final["diverged"], final["continued_calls"]) == ("error_engine", True, 0)
    assert lost_generation(bench.ledger).waited > 0, "the two calls of the first attempt"
