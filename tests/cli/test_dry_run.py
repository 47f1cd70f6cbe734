"""`quartet train --dry-run` finds the mistakes in a data set's settings with which a run would not start."""

import json
import re
from pathlib import Path

import pytest

from tests.command import Ended, quartet

RECIPE = """
name = "mine"
model.path = "dataset_math-start"
rollout = {max_turns = 1, max_tokens = 8}

[env]
name = "dataset"
data = "rows.jsonl"
prompt = "What is {{ question }}?"
reward = "own_reward:score"
screenshots = false
"""


def dry_run(folder: Path, *overrides: str, code: str = "def score(response, answer):\n    return 1.0\n") -> Ended:
    """Run the command in a folder with a data set and the module of its reward function."""
    rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(60)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "own_reward.py").write_text(code)
    (folder / "recipe.toml").write_text(RECIPE)
    settings = [word for override in overrides for word in ("--set", override)]
    return quartet("train", "recipe.toml", "--dry-run", *settings, folder=folder)


def test_a_recipe_without_mistakes_passes(tmp_path):
    shown = dry_run(tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "trajectories per train step" in shown.stdout and not (tmp_path / "runs").exists()
    assert "first training task of 'rows':\n  user: 'What is 0 + 1?'" in shown.stdout


def test_evaluations_that_repeat_held_out_rows_are_noted(tmp_path):
    shown = dry_run(tmp_path, "evaluation.episodes_per_family=30")
    (held_out,) = re.findall(r"30 held-out episodes per evaluation, on (\d+) held-out tasks", shown.stdout)
    repeated = f"note: evaluation.episodes_per_family = 30, but the family 'rows' has {held_out} held-out task"
    assert repeated in shown.stderr and f"-> set evaluation.episodes_per_family={held_out}" in shown.stderr
    enough = dry_run(tmp_path, f"evaluation.episodes_per_family={held_out}")
    during = dry_run(tmp_path, "evaluation.before_and_after=false", "evaluation.train_steps_per_evaluation=1")
    assert "held-out task" not in enough.stderr + during.stderr
    more = ("evaluation.train_steps_per_evaluation=1", "evaluation.episodes_per_family_during=31")
    assert "evaluation.episodes_per_family_during = 31, but" in dry_run(tmp_path, *more).stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.reward=own_reward:scor", "own_reward:scor cannot be loaded: no reward at 'own_reward:scor': module"),
        ("env.reward=own_rewrd:score", "no module 'own_rewrd' with the reward function 'score'"),
        ('env.reward={name="own_reward:score", answr="x"}', "has no parameter 'answr'"),
        ("env.prompt={{ questoin }}", "'questoin' is undefined; the row has the columns answer, question"),
        ("env.data=row.jsonl", "there is no data set at"),
    ],
)
def test_a_wrong_setting_is_an_error(tmp_path, override, message):
    shown = dry_run(tmp_path, override)
    assert shown.returncode == 2 and message in shown.stderr and "\n  -> " in shown.stderr
    assert shown.stdout == "" and "Traceback" not in shown.stderr


def test_a_module_that_cannot_be_imported_is_an_error_with_its_place(tmp_path):
    shown = dry_run(tmp_path, code="import json\n\nscore = json.no_such_name\n")
    assert shown.returncode == 2
    assert "no reward at 'own_reward:score': module 'json' has no attribute 'no_such_name'" in shown.stderr
    shown = dry_run(tmp_path, code="score = 1 / 0\n")
    assert shown.returncode == 2
    assert "ZeroDivisionError: division by zero (own_reward.py:1, in <module>)" in shown.stderr


def test_a_missing_package_is_a_note_since_it_may_be_installed_where_the_run_starts(tmp_path):
    (tmp_path / "jsonschema.py").write_text("raise ModuleNotFoundError('not installed', name='jsonschema')\n")
    shown = dry_run(tmp_path, "env.reward=json_schema")
    assert shown.returncode == 0, shown.stderr
    assert "note: a check of this machine failed" in shown.stderr
    assert "the reward json_schema needs the package jsonschema -> pip install" in shown.stderr


def test_a_package_that_the_module_of_a_reward_lacks_is_such_a_note_too(tmp_path):
    shown = dry_run(tmp_path, code="import no_such_package\n\ndef score(response, answer):\n    return 1.0\n")
    assert shown.returncode == 0, shown.stderr
    assert "note: a check of this machine failed: the reward own_reward:score cannot be loaded" in shown.stderr
    assert "No module named 'no_such_package'" in shown.stderr


def test_what_a_module_of_a_reward_prints_or_ends_does_not_reach_the_command(tmp_path):
    shown = dry_run(tmp_path, code="print('loaded own_reward')\n\ndef score(response, answer):\n    return 1.0\n")
    assert shown.returncode == 0 and "loaded own_reward" not in shown.stdout
    shown = dry_run(tmp_path, code="raise SystemExit(0)\n")
    assert "trajectories per train step" in shown.stdout
    assert "cannot be loaded: it ended its process with exit status 0" in shown.stderr


def test_init_loads_the_reward_too(tmp_path):
    dry_run(tmp_path)  # writes the data set and the module
    settings = ["env.data=rows.jsonl", "env.prompt=What is {{ question }}?", "env.reward=own_reward:scor"]
    arguments = ("new", "--env", "dataset", "--model", "miniwob-start", *(f"--set={one}" for one in settings))
    refused = quartet("init", *arguments, folder=tmp_path)
    assert refused.returncode == 2 and "own_reward:scor cannot be loaded" in refused.stderr
    assert not (tmp_path / "new" / "recipe.toml").exists()
    made = quartet("init", *arguments, "--set", "env.reward=own_reward:score", folder=tmp_path)
    assert made.returncode == 0, made.stderr
