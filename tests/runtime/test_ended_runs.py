"""Runs that end before their time: the exit code, the reason, and a summary that holds it."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.bandit import bandit_recipe
from quartet.cli import cli
from quartet.errors import QuartetError, StarvedError, UnusablePolicyError
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml

pytestmark = pytest.mark.slow


def ended(tmp_path: Path, policy: Path, *arguments: str, **sections: dict) -> QuartetError:
    """The error that `quartet train` ends with."""
    (tmp_path / "recipe.toml").write_text(to_toml(bandit_recipe(policy, **sections)))
    outcome = CliRunner().invoke(
        cli, ["train", str(tmp_path / "recipe.toml"), "--run-dir", str(tmp_path / "run"), *arguments]
    )
    assert isinstance(outcome.exception, QuartetError), (outcome.output, outcome.exception)
    return outcome.exception


def summary(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "run" / "summary.json").read_text())


def reason(tmp_path: Path) -> str:
    """As `status` and the dashboard show it."""
    ledger = Ledger.view(tmp_path / "run")
    stopped = ledger.stop_reason()
    ledger.close()
    return stopped or ""


WITHOUT_BATCH: dict[str, dict] = {
    "runtime": {"kind": "synchronous"},
    "admission": {"max_lag": 0},
    "rollout": {"temperature": 1e-3},  # every rollout does the same: it presses the left button
    "train": {"starved_timeout_seconds": 1.0},
    "evaluation": {"before_and_after": False},
}


def test_starved_run_reports_drop_reasons_and_advice(tmp_path: Path, bandit_policy: Path) -> None:
    error = ended(tmp_path, bandit_policy, **WITHOUT_BATCH, env={"families": ["named"]})
    assert isinstance(error, StarvedError) and error.exit_code == 3
    assert "no batch for 1 s" in error.what and "equal_rewards" in error.what and "0 kept" in error.what
    assert "most groups were dropped for equal_rewards" in error.advice
    assert summary(tmp_path)["stop_reason"] == reason(tmp_path) == error.what


def test_a_run_without_failures_ends_as_solved_with_the_evaluation_after_training(
    tmp_path: Path, bandit_policy: Path
) -> None:
    sections = WITHOUT_BATCH | {
        "control": {"rollouts_per_group": 2},
        "train": {"starved_timeout_seconds": 8.0},  # many times what `LEAST_SOLVED_GROUPS` groups take
        "evaluation": {"episodes_per_family": 4},
    }
    recipe = bandit_recipe(bandit_policy, **sections)
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    outcome = CliRunner().invoke(cli, ["train", str(tmp_path / "recipe.toml"), "--run-dir", str(tmp_path / "run")])
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    written = summary(tmp_path)
    assert written["stop_reason"] == reason(tmp_path)
    assert written["stop_reason"].startswith("solved: all rollouts succeeded")
    assert written["success_after"] == 1.0


@pytest.mark.parametrize("runtime", ["processes", "synchronous"])
def test_a_run_whose_only_policy_is_damaged_ends_at_once(tmp_path: Path, bandit_policy: Path, runtime: str) -> None:
    damaged = tmp_path / "policy"
    shutil.copytree(bandit_policy, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    sections = {"runtime": {"kind": runtime}, "admission": {"max_lag": 0}, "evaluation": {"before_and_after": False}}
    error = ended(tmp_path, damaged, **sections)
    assert isinstance(error, UnusablePolicyError) and error.exit_code == 7
    assert "model.safetensors is damaged" in error.what and error.advice
    written = summary(tmp_path)
    assert written["stop_reason"] == reason(tmp_path) == f"error: {error.what.splitlines()[0]}"
    assert (written["train_steps"], written["lost"], written["success_after"]) == (0, 0, None)
