"""Each numbered tutorial runs as its first lines say, from a folder of its own, and prints what it promises."""

import importlib.util
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "1_first_run": r"held-out success: +\d+% -> \d+%.*lost: 0, trained twice: 0",
    "2_own_environment": r"held-out success: +\d+% -> \d+%",
    "3_own_credit_and_loss": r"4 train steps with both parts; lost: 0",
    "4_own_rollout_strategy": r"\d+ rollouts, [1-9]\d* of them forked; lost: 0",
    "5_reading_the_ledger": r"Trajectories of each train step\n.*\n  5  \d+  \d+  \d",
    "6_from_laptop_to_cluster": r"one-process .*lost 0.*processes .*lost 0.*two-engines .*lost 0",
}


TOLD_ELSEWHERE = ("2_own_environment", "5_reading_the_ledger", "6_from_laptop_to_cluster")
"""What these show has other tests too: an environment of one's own, each way to run the modules, and the queries below.
Campaigns run them."""


def test_every_tutorial_is_run():
    assert set(PRINTED) == {file.stem for file in EXAMPLES.glob("[0-9]*.py")}


@pytest.mark.slow
def test_queries_of_the_tutorial_read_the_ledger_of_any_run(recorded_run):
    spec = importlib.util.spec_from_file_location("tutorial", EXAMPLES / "5_reading_the_ledger.py")
    assert spec and spec.loader
    tutorial = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tutorial)
    with closing(sqlite3.connect(f"file:{recorded_run / 'ledger.sqlite'}?mode=ro", uri=True)) as connection:
        families, groups, steps, twice = (connection.execute(one).fetchall() for one in tutorial.QUESTIONS.values())
    assert [family for family, *_ in families] == ["fixed"]
    assert ("trained", "", 6) in groups
    assert [(step, trajectories) for step, trajectories, *_ in steps] == [(1, 16), (2, 16), (3, 16)]
    assert twice == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.campaign] * (name in TOLD_ELSEWHERE)) for name in PRINTED]
)
def test_a_tutorial_prints_what_it_promises(name, tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTED[name], done.stdout, re.DOTALL), done.stdout
