"""Each numbered tutorial runs as its first lines say, from a folder of its own, and prints what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "1_first_run": r"held-out success: +\d+% -> \d+%.*lost: 0, trained twice: 0",
    "2_own_environment": r"held-out success: +\d+% -> \d+%",
    "3_own_credit_and_loss": r"8 train steps with both parts; lost: 0",
    "4_own_rollout_strategy": r"\d+ rollouts, [1-9]\d* of them forked; lost: 0",
    "5_reading_the_ledger": r"What each train step was trained on\n.*\n  8  \d+  \d+  \d",
    "6_from_laptop_to_cluster": r"one-process .*lost 0.*processes .*lost 0.*two-engines .*lost 0",
}


def test_every_tutorial_is_run():
    assert set(PRINTED) == {file.stem for file in EXAMPLES.glob("[0-9]*.py")}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PRINTED)
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
