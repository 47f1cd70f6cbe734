"""Rollouts on a data set whose reward function fails: nothing is lost, nothing is a zero, and the run goes on."""

import json
import os

import pytest
from worker_bench import Bench

from quartet.report.totals import status_counts
from quartet.types import RolloutPlan, Task

FUNCTION = """
import os, pathlib, time

FAILED_BEFORE = pathlib.Path(__file__).with_name("failed_before")

def score(response, answer):
    if response == "hang":
        time.sleep(1000)
    if response == "exit once" and not FAILED_BEFORE.exists():
        FAILED_BEFORE.touch()
        os._exit(1)
    if response == "nan":
        return float("nan")
    return {"right": float(response == "2"), "length": 0.25}
"""


@pytest.mark.slow
async def test_a_reward_that_fails_is_retried_for_the_same_response_and_then_an_error(tmp_path, monkeypatch):
    """Of four responses one is scored at once, one at its second attempt, and two never within three attempts."""
    (tmp_path / "failing_reward.py").write_text(FUNCTION)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"prompt": f"{n} + 1"}) + "\n" for n in range(9)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    reward = {"name": "failing_reward:score", "timeout_seconds": 1.0}
    env = {"name": "dataset", "data": str(tmp_path / "data.jsonl"), "held_out_share": 0.4, "reward": reward}
    responses = iter(["2", "hang", "nan", "exit once"])
    bench = Bench(tmp_path, lambda request, index: next(responses), sections={"env": env | {"sessions": 1}})
    for seed in range(4):
        task = Task(env="dataset", family="rows", seed=seed)
        bench.ledger.groups.admit(RolloutPlan(task=task, num_rollouts=1, max_turns=1))
    try:
        assert await bench.worker.run_queued() == 1 + 3 + 3 + 2
    finally:
        await bench.pool.close()
    assert status_counts(bench.ledger) == {"completed": 2, "error_reward": 2}
    found = [bench.ledger.groups.load(group_id).members for group_id in range(1, 5)]
    rewards = [member.trajectory.rewards for members in found for member in members]
    assert sorted(map(str, rewards)) == [
        "{'right': 0.0, 'length': 0.25}",
        "{'right': 1.0, 'length': 0.25}",
    ]
