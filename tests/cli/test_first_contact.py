"""What a new user meets first: each mistake ends with one error that says what happened and what to do."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.bandit import bandit_recipe
from quartet.cli import cli
from quartet.cli.eval import evaluation_name
from quartet.cli.parameters import RunFolder
from quartet.config import Env
from quartet.env import make_environment
from quartet.errors import ConfigError, LedgerError, QuartetError, SetupError
from quartet.ledger import Ledger
from quartet.manager.evaluation import EVALUATION_MARKER
from quartet.manager.manager import manager_lock, run_manager
from quartet.recipe.file import find_recipe, load_recipe, to_toml
from quartet.run.run_dir import RunLock
from quartet.shipped import shipped_policies
from quartet.telemetry.log import LogFile

GOOD = b'name = "a"\n[model]\npath = "miniwob-start"\n[env]\nname = "bandit"\n'


def failure(*arguments: object) -> QuartetError:
    """The error that a command ends with."""
    outcome = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert isinstance(outcome.exception, QuartetError), (outcome.output, outcome.exception)
    return outcome.exception


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_bytes(GOOD)
    return tmp_path / "recipe.toml"


@pytest.mark.parametrize(
    ("content", "what", "advice"),
    [
        (b'name = "a\n[model]\n', "is not valid TOML", "line 1 is 'name = \"a'"),
        (b'name = "a\x00b"\n', "is not valid TOML", "line 1 is 'name = \"a"),
        (GOOD + b"# \xe9\n", "is not UTF-8: byte", "save it as UTF-8"),
        (GOOD + b"x = " + b"[" * 3000 + b"]" * 3000, "is nested too deeply", "sections with values"),
    ],
)
def test_a_broken_recipe_is_shown_by_its_line(tmp_path, content, what, advice):
    (tmp_path / "broken.toml").write_bytes(content)
    error = failure("train", tmp_path / "broken.toml", "--dry-run")
    assert isinstance(error, ConfigError)
    assert what in error.what and advice in error.advice


def test_a_byte_order_mark_is_no_mistake(recipe):
    recipe.write_bytes(b"\xef\xbb\xbf" + GOOD)
    assert load_recipe(recipe).name == "a"


@pytest.mark.parametrize("override", ["foo", "=3", "train.max_seconds", "train..max_seconds=3", "x=" + "[" * 3000])
def test_an_override_of_another_form_is_answered_with_an_example(recipe, override):
    error = failure("train", recipe, "--dry-run", "--set", override)
    assert error.advice and len(str(error)) < 500


def test_a_folder_stands_for_its_recipe(recipe):
    assert find_recipe(recipe.parent) == recipe


def test_a_context_beyond_the_models_positions_is_refused(recipe):
    settings = ["engine.max_context_tokens=4096", "train.max_tokens_per_microbatch=4096"]
    error = failure("train", recipe, "--dry-run", *(f"--set={setting}" for setting in settings))
    assert isinstance(error, ConfigError)
    assert "model's 2048 positions" in error.what and "engine.max_context_tokens=2048" in error.advice


@pytest.mark.parametrize(
    ("settings", "lacking"),
    [
        (["env.name=miniwob"], "/no/such/browser"),
        (["engine.name=vllm", "engine.python=/no/such/python"], "/no/such/python"),
    ],
)
def test_a_dry_run_says_what_the_machine_lacks(recipe, monkeypatch, settings, lacking):
    monkeypatch.setenv("QUARTET_CHROMIUM", "/no/such/browser")
    outcome = CliRunner().invoke(
        cli, ["train", str(recipe), "--dry-run", *(f"--set={setting}" for setting in settings)]
    )
    assert outcome.exit_code == 0 and "rollouts ahead of the trainer" in outcome.stdout
    assert "a check of this machine failed" in outcome.stderr and lacking in outcome.stderr and "->" in outcome.stderr


def test_the_policy_that_ships_has_a_name(recipe, tmp_path):
    shipped = shipped_policies()["miniwob-start"]
    assert load_recipe(recipe).model.path == str(shipped)
    assert load_recipe(recipe, ["model.path=miniwob-start"]).model.path == str(shipped)
    outcome = CliRunner().invoke(cli, ["init", str(tmp_path / "new"), "--env", "bandit", "--model", "miniwob-start"])
    assert outcome.exit_code == 0, outcome.output
    assert 'path = "miniwob-start"' in (tmp_path / "new" / "recipe.toml").read_text()
    assert "miniwob-start" in CliRunner().invoke(cli, ["recipes"]).output
    assert "miniwob-start" in failure("eval", "miniwob-strat", "--recipe", recipe).advice
    own = recipe.parent / "miniwob-start"
    own.mkdir()
    assert load_recipe(recipe).model.path == str(own), "a folder of that name comes first"


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("trian.max_seconds=60", "unknown key 'trian'"),
        ("train.learnig_rate=1e-5", "learnig_rate"),
        ("train.target_success=null", "null cannot be written"),
    ],
)
def test_init_leaves_no_override_out(tmp_path, override, what):
    error = failure("init", tmp_path / "new", "--env", "bandit", "--model", "miniwob-start", "--set", override)
    assert what in error.what and not (tmp_path / "new" / "recipe.toml").exists()


def test_init_takes_the_short_form_of_a_choice(tmp_path):
    new = tmp_path / "new"
    arguments = ["init", str(new), "--env", "bandit", "--model", "miniwob-start", "--set", "engine=transformers"]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert load_recipe(new / "recipe.toml").engine.name == "transformers"


def test_options_without_what_they_choose_from_are_refused(recipe):
    assert "none is named" in failure("doctor", "--set", "engine.name=vllm").what
    assert "chooses one of a run" in failure("eval", "miniwob-start", "--recipe", recipe, "--policy", "best").what


def test_eval_does_not_replace_an_earlier_result(recipe, tmp_path):
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    (earlier / EVALUATION_MARKER).touch()
    (earlier / "summary.json").write_text('{"success_greedy": 0.5, "success_sampled": 0.25, "policy": "p"}')
    error = failure("eval", "miniwob-start", "--recipe", recipe, "--output", earlier)
    assert "greedy 50 %" in error.what and "--fresh" in error.advice and "--output" in error.advice
    assert "0.25" in (earlier / "summary.json").read_text()


def test_policies_of_one_name_in_different_folders_are_evaluated_apart(tmp_path):
    one, other = evaluation_name(tmp_path / "one" / "policy"), evaluation_name(tmp_path / "other" / "policy")
    assert one != other and one.startswith("eval-policy-") and other.startswith("eval-policy-")
    assert evaluation_name(tmp_path / "other" / ".." / "one" / "policy") == one


@pytest.mark.slow
def test_a_run_about_to_start_is_waited_for(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(to_toml(bandit_recipe(Path("policy"))))
    with RunLock(run):
        assert "is starting and has no ledger yet" in failure("status", run).what
        command = [sys.executable, "-m", "quartet", "view", str(run), "--port", "0"]
        view = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert view.stdout and view.stderr
        try:
            assert "is starting: waiting for its ledger" in view.stderr.readline()
            ledger = Ledger.create(run)
            ledger.policies.register_initial("policy")
            ledger.close()
            assert view.stdout.readline().startswith("http://127.0.0.1:")
        finally:
            view.terminate()
            view.communicate(timeout=120)


def test_a_run_without_a_process_is_not_waited_for(tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(bandit_recipe(Path("policy"))))
    assert isinstance(failure("view", tmp_path), LedgerError)


@pytest.mark.parametrize("arguments", [["compare"], ["stop"], ["status"], ["view"], ["ledger", "gc"]])
def test_a_folder_of_something_else_is_not_a_run(tmp_path, arguments):
    (tmp_path / "index.md").touch()
    error = failure(*arguments, tmp_path)
    assert isinstance(error, ConfigError) and error.what == f"{tmp_path} is not a run"


def test_a_run_that_has_only_its_lock_is_a_run(tmp_path):
    with RunLock(tmp_path):
        assert RunFolder().convert(tmp_path, None, None) == tmp_path


def test_a_second_manager_is_told_that_there_is_one(tmp_path):
    with manager_lock(tmp_path), pytest.raises(SetupError, match=f"has a manager: process {os.getpid()}"):
        asyncio.run(run_manager(bandit_recipe(Path("policy")), tmp_path, asyncio.Event()))


def test_a_log_on_a_full_disk_prints_no_traceback(capfd):
    handler = LogFile("/dev/full")
    handler.handle(logging.LogRecord("a", logging.ERROR, "", 0, "words", None, None))
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_wandb_without_a_key_says_how_to_log_in(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(to_toml(bandit_recipe(Path("policy"))))
    Ledger.create(run).close()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(tmp_path), "NETRC": str(tmp_path / "none")}
    command = [sys.executable, "-m", "quartet", "sink", str(run), "wandb"]
    ended = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == SetupError.exit_code
    assert "Traceback" not in ended.stderr and "W&B cannot be used" in ended.stderr and "wandb login" in ended.stderr


def test_a_path_in_place_of_an_environments_module_is_named(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "doors.py").touch()
    monkeypatch.chdir(tmp_path)
    error = failure("env", "check", "folder/doors")
    assert (
        error.what == "folder/doors is a path, not a module" and error.advice == "run the command in folder with doors"
    )


def test_an_evaluation_is_not_written_over_a_file(tmp_path):
    (tmp_path / "result.json").touch()
    outcome = CliRunner().invoke(cli, ["eval", str(tmp_path), "--output", str(tmp_path / "result.json")])
    assert isinstance(outcome.exception, SystemExit) and "is a file" in outcome.output


@pytest.mark.parametrize("override", ["env.data=rows.jsonl", 'env.data="./rows.jsonl"', 'env={data = "rows.jsonl"}'])
def test_init_takes_paths_from_the_current_folder(tmp_path, monkeypatch, override):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new").mkdir()
    for name in ("rows.jsonl", "new/turns.jsonl"):
        rows = [{"prompt": f"{n} + 1", "answer": str(n + 1)} for n in range(60)]
        (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = [override, "env.name=dataset", "env.reward=number", "env.prompt={{ prompt }}"]
    settings += ["sft.data=new/turns.jsonl", "env.system=/think", "env.screenshots=false"]
    arguments = ["init", "new", "--env", "dataset", "--model", "miniwob-start"]
    outcome = CliRunner().invoke(cli, [*arguments, *(f"--set={setting}" for setting in settings)])
    assert outcome.exit_code == 0, outcome.exception
    recipe = load_recipe(tmp_path / "new" / "recipe.toml")
    assert recipe.env.settings["data"] == str(tmp_path / "rows.jsonl"), "as `quartet train --set` reads it"
    assert recipe.env.settings["system"] == "/think"
    text = (tmp_path / "new" / "recipe.toml").read_text()
    assert 'data = "turns.jsonl"' in text, "a path inside the recipe's folder is relative to it"
    assert 'path = "miniwob-start"' in text


def test_paths_in_lists_are_placed_as_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("programs", "new/own"):
        (tmp_path / place / "bin").mkdir(parents=True)
    arguments = ["init", "new", "--env", "harbor", "--model", "miniwob-start", "--set"]
    outcome = CliRunner().invoke(cli, [*arguments, 'env.programs=["programs", "new/own"]'])
    assert outcome.exit_code == 0, outcome.exception
    assert '"own"]' in (tmp_path / "new" / "recipe.toml").read_text()
    monkeypatch.chdir(tmp_path / "programs")
    programs = load_recipe(tmp_path / "new" / "recipe.toml").env.settings["programs"]
    assert programs == [str(tmp_path / "programs"), str(tmp_path / "new" / "own")]


def test_a_missing_package_of_the_environment_is_named_before_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("quartet.env.extra.find_spec", lambda module: None)
    monkeypatch.delitem(sys.modules, "gem", raising=False)
    new, command = tmp_path / "new", "pip install 'quartet-rl[gem]'"
    outcome = CliRunner().invoke(cli, ["init", str(new), "--env", "gem", "--model", "miniwob-start"])
    assert outcome.exit_code == 0 and "module 'gem'" in outcome.stderr and command in outcome.stderr
    outcome = CliRunner().invoke(cli, ["train", str(new), "--dry-run", "--run-dir", str(tmp_path / "run")])
    assert outcome.exit_code == 0 and outcome.stderr.count("module 'gem'") == 1 and command in outcome.stderr
    outcome = CliRunner().invoke(cli, ["env", "check", "gem", "--set", 'env.ids=["game:Mastermind-v0"]'])
    assert isinstance(outcome.exception, SetupError) and outcome.exception.advice == command and outcome.stdout == ""


def test_only_the_modules_that_its_ids_need_are_required_of_gymnasium():
    modules = {"CartPole-v1": ["gymnasium"], "minigrid:MiniGrid-Empty-5x5-v0": ["gymnasium", "minigrid"]}
    for name, needed in modules.items():
        assert make_environment(Env(name="gymnasium", ids=[name])).modules() == needed
