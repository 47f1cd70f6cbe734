"""A finished run is resumed only with something left to do."""

import json
import re
import shutil
import sys

import pytest

from quartet.cli import main
from quartet.errors import SetupError
from quartet.ledger import Ledger
from quartet.recipe.file import load_recipe
from quartet.run.run_dir import RunLock
from quartet.runtime.finished import finished_by, mark_finished
from quartet.types.phase import FINISHED


@pytest.fixture
def run(small_runs, tmp_path):
    return shutil.copytree(small_runs[0], tmp_path / "run")


def resumed(monkeypatch, capsys, run, *arguments):
    """Exit code, summary and standard error of `quartet train … --resume --json`."""
    command = ["quartet", "train", str(run / "config.toml"), "--run-dir", str(run), "--resume", "--json", *arguments]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    shown = capsys.readouterr()
    return stopped.value.code, json.loads(shown.out), shown.err


def test_with_its_limit_nothing_is_started_and_with_a_higher_one_it_goes_on(monkeypatch, capsys, run):
    before = (run / "summary.json").read_bytes()
    code, summary, told = resumed(monkeypatch, capsys, run)
    assert "not those of the run before" not in told
    assert (code, summary) == (0, json.loads(before))
    assert f"{run} is finished, so nothing is started: train.max_train_steps = 2 is reached" in told
    assert "--set train.max_train_steps=4" in told
    assert (run / "summary.json").read_bytes() == before
    code, summary, told = resumed(monkeypatch, capsys, run, "--set", "train.max_train_steps=3")
    assert (code, summary["train_steps"], told) == (0, 3, "")
    assert resumed(monkeypatch, capsys, run, "--set", "train.max_train_steps=3")[1] == summary


def test_settings_that_a_resume_changes_are_named_unless_they_are_given_by_set(monkeypatch, capsys, run):
    recipe = run.parent / "recipe.toml"
    recipe.write_text(re.sub("lease_seconds = .*", "lease_seconds = 77.0", (run / "config.toml").read_text()))
    for option, note in (("rollout.lease_seconds=90", False), ("train.max_train_steps=2", True)):
        command = ["quartet", "train", str(recipe), "--run-dir", str(run), "--resume", "--json", "--set", option]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit):
            main()
        assert ("not those of the run before: rollout.lease_seconds\n" in capsys.readouterr().err) is note


def test_run_killed_before_its_end_or_lacking_a_part_continues(run):
    recipe = load_recipe(run / "config.toml")
    assert finished_by(recipe, run) == "train.max_train_steps = 2"
    evaluation = recipe.evaluation.model_copy(update={"supervised_control": True})
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"train_seconds": 1.0}))
    assert finished_by(recipe.model_copy(update={"evaluation": evaluation}), run) is None
    ledger = Ledger.open(run)
    ledger.enter_phase("training")  # killed after the limit was reached, before the last evaluation
    ledger.close()
    assert finished_by(recipe, run) is None


def test_run_resumed_by_another_process_is_not_marked_finished(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.enter_phase("training")
    with RunLock(tmp_path), pytest.raises(SetupError, match="is in use by process"):
        mark_finished(tmp_path)
    assert ledger.value("phase") == "training"
    mark_finished(tmp_path)
    assert ledger.value("phase") == FINISHED
    ledger.close()
