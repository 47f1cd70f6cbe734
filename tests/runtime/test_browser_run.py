"""A short run in a real browser; its Chromium alone is killed in the middle."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from quartet.ledger import Ledger
from quartet.recipe.file import load_recipe
from tests.runtime.test_end_to_end import finish, start_run, train_step, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.browser]
REPOSITORY = Path(__file__).parents[2]


def test_a_killed_chromium_comes_back_and_the_promises_hold(tmp_path):
    recipe = load_recipe(
        REPOSITORY / "recipes/miniwob/recipe.toml",
        [
            f'model.path="{REPOSITORY}/recipes/miniwob/policy"',
            'env.families=["click-option", "login-user", "choose-list", "search-engine"]',
            "env.sessions=4",
            "evaluation.before_and_after=false",
            "evaluation.train_steps_per_evaluation=0",
            "evaluation.control=false",
            "train.groups_per_batch=2",
            "train.max_train_steps=4",
            "control.rollouts_per_group=4",
        ],
    )
    process = start_run(tmp_path, recipe)
    wait_for(lambda: train_step(tmp_path / "run") >= 1, process)
    ledger = Ledger.open(tmp_path / "run")
    host = next(row.pid for row in ledger.modules() if row.module == "env")
    browsers = [child for child in psutil.Process(host).children() if "chrom" in child.name()]
    assert len(browsers) == 1
    os.kill(browsers[0].pid, signal.SIGKILL)
    summary = finish(process)
    assert summary["train_steps"] == 4
    assert summary["lost"] == summary["trained_twice"] == 0
    assert set(summary["statuses"]) <= {"completed", "truncated_turns", "truncated_tokens", "cancelled", "error_env"}
    assert ledger.drop_pictures(1000, checkpoint_step=4)[1] > 0, "the disk budget finds pictures to take"
    ledger.close()
