"""The command line: bad input ends with a clear error that says what to do, and nothing is touched."""

import json
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError, SetupError
from quartet.files.disk import STOPPED_BY_DISK
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.telemetry.presence import Presence
from quartet.types import RolloutPlan, Task
from tests.command import quartet
from tests.ledger.samples import trajectory


@pytest.fixture
def recipe_path(tmp_path, bandit_policy):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(bandit_recipe(bandit_policy)))
    return path


@pytest.mark.slow
def test_help_lists_every_command():
    shown = subprocess.run([sys.executable, "-m", "quartet", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0
    for command in ("train", "sft", "eval", "status", "stop"):
        assert command in shown.stdout


def test_one_of_a_thing_is_not_said_in_the_plural(recipe_path, tmp_path):
    ones = ("train.groups_per_batch=1", "train.minibatches=1", "train.epochs=1", "env.families=['fixed']")
    settings = [word for one in ones for word in ("--set", one)]
    shown = quartet("train", recipe_path, "--run-dir", tmp_path / "run", "--dry-run", *settings)
    for words in ("1 group × ", "\n1 optimizer step per train step (1 minibatch × 1 epoch)", "\n1 task family, "):
        assert words in shown.stdout, shown.stderr


def test_dry_run_prints_the_arithmetic_and_makes_nothing(recipe_path, tmp_path):
    shown = quartet("train", recipe_path, "--run-dir", tmp_path / "run", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "2 groups × 8 rollouts = 16 trajectories per train step" in shown.stdout
    assert "fresh tokens with a lag above 2 train steps are not trained" in shown.stdout
    assert not (tmp_path / "run").exists()
    Ledger.create(tmp_path / "run").close()
    (tmp_path / "run" / "config.toml").write_text(recipe_path.read_text())
    taken = quartet("train", recipe_path, "--run-dir", tmp_path / "run", "--dry-run")
    assert taken.returncode == 0 and taken.stdout == shown.stdout
    assert "already holds a run" in taken.stderr
    numbers = json.loads(quartet("train", recipe_path, "--dry-run", "--json").stdout)
    assert numbers["max_rollouts_ahead"] == 3 * 2 * 8
    placed = quartet("train", recipe_path, "--dry-run", "--json", "--set", "runtime.kind=ray")
    assert [one["module"] for one in json.loads(placed.stdout)["placement"]] == [
        *("env", "engine", "worker", "manager", "trainer")
    ]


@pytest.mark.parametrize("arguments", [("--lr", "1"), ("train.lr=1",)])
def test_a_setting_without_set_gets_the_hint(recipe_path, arguments):
    told = quartet("train", recipe_path, *arguments)
    assert told.returncode == 2 and "--set train.learning_rate" in told.stderr and "'--help'" not in told.stderr


@pytest.mark.slow
def test_dry_run_loads_no_model_library(recipe_path):
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom quartet.cli import cli\n"
        f"result = CliRunner().invoke(cli, ['train', {str(recipe_path)!r}, '--dry-run'])\n"
        "assert result.exit_code == 0, result.output\n"
        "print({'torch', 'transformers', 'aiohttp', 'matplotlib'} & set(sys.modules) or 'light')"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.stdout.strip() == "light", finished.stdout + finished.stderr


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.families=['fixd']", "unknown task family 'fixd' of 'bandit'\n  -> Did you mean 'fixed'?"),
        ("env.name=bandid", "unknown env 'bandid'\n  -> Did you mean 'bandit'?"),
        ("env.sesions=3", "Did you mean 'env.sessions'?"),
        ("control.sampler=contrst", "Did you mean 'contrast'?"),
        ("loss.terms=ppo_clib", "Did you mean 'ppo_clip'?"),
        ("credit.name=grp", "Did you mean 'grpo'?"),
        ("filters=['mixed_outcom']", "Did you mean 'mixed_outcome'?"),
        ("rollout.loop=newest", "unknown loop 'newest'"),
        ("model.path=no/such/model", f"{Path.cwd()}/no/such/model/config.json"),
        ("train.epochs=0", "train.epochs"),
        ("train.max_tokens_per_microbatch=100", "is more than train.max_tokens_per_microbatch = 100"),
    ],
)
def test_a_wrong_recipe_is_refused_with_a_hint(recipe_path, override, message):
    refused = quartet("train", recipe_path, "--set", override, "--dry-run")
    assert refused.returncode == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_damaged_policy_is_not_evaluated(recipe_path, tmp_path, bandit_policy):
    policy = Path(shutil.copytree(bandit_policy, tmp_path / "policy"))
    weights = bytearray((policy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (policy / "model.safetensors").write_bytes(weights)
    refused = quartet("eval", policy, "--recipe", recipe_path, "--output", tmp_path / "out")
    assert refused.returncode == 1
    assert f"{policy / 'model.safetensors'} is damaged" in refused.stderr
    assert "Traceback" not in refused.stderr and not (tmp_path / "out").exists()


def test_a_corrupted_ledger_is_named_and_left_alone(recipe_path, tmp_path, bandit_policy):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(recipe_path.read_text())
    garbage = b"this is no database" * 100
    (run / "ledger.sqlite").write_bytes(garbage)
    for arguments in (["status", run], ["train", recipe_path, "--run-dir", run, "--resume"]):
        refused = quartet(*arguments)
        assert refused.returncode == 1
        assert "ledger.sqlite" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert (run / "ledger.sqlite").read_bytes() == garbage


def test_status_and_stop_of_a_finished_run(tmp_path, bandit_policy):
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial(str(bandit_policy))
    Presence(ledger.modules, "trainer").waits("a batch", "a group")
    ledger.close()
    status = json.loads(quartet("status", tmp_path / "run", "--json").stdout)
    assert status["running"] is False
    assert status["train_step"] == 0
    assert [(module["state"], module["waiting_for"]) for module in status["modules"]] == [("not running", "")]
    stopped = json.loads(quartet("stop", tmp_path / "run", "--json").stdout)
    assert stopped["was_running"] is False


@pytest.fixture
def stored_run(tmp_path, recipe_path, bandit_policy):
    """A run with one success and one failure."""
    run = tmp_path / "run"
    ledger = Ledger.create(run)
    ledger.policies.register_initial(str(bandit_policy))
    (run / "config.toml").write_text(recipe_path.read_text())
    task = Task(env="bandit", family="fixed", seed=1)
    ledger.groups.admit(RolloutPlan(task=task, num_rollouts=2, max_turns=1))
    for lease in ledger.rollouts.claim("w", 2, 60):
        ledger.trajectories.append(lease, trajectory(task, reward=float(lease.index)), 3)
    ledger.close()
    return run


def test_export_says_what_it_wrote(stored_run, tmp_path):
    output = tmp_path / "x.jsonl"
    arguments = ("ledger", "export", stored_run, "--format", "chat", "--output", output)
    assert re.match(r"1 trajectory, 1 turn, 1 response token, \d+ bytes in ", quartet(*arguments).stdout)
    summary = json.loads(quartet(*arguments, "--any-outcome", "--json").stdout)
    assert (summary["trajectories"], summary["bytes"]) == (2, output.stat().st_size)
    misspelt = quartet(*arguments, "--family", "fixd")
    assert misspelt.returncode == 2 and "no trajectory of family 'fixd'\n  -> Did you mean 'fixed'?" in misspelt.stderr
    unknown = quartet("ledger", "export", stored_run, "--format", "parket", "--output", output)
    assert unknown.returncode == 2 and "Did you mean 'parquet'?" in unknown.stderr
    assert len(output.read_text().splitlines()) == 2


def test_a_run_without_receipts_cannot_be_audited(stored_run):
    refused = quartet("ledger", "audit", stored_run)
    assert refused.returncode == 2
    assert "has no receipts" in refused.stderr and "runtime.receipts = true" in refused.stderr


@pytest.mark.slow
def test_export_loads_no_more_than_it_needs(stored_run, tmp_path):
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom quartet.cli import cli\n"
        f"arguments = ['ledger', 'export', {str(stored_run)!r}, '--output', {str(tmp_path / 'x')!r}, '--format']\n"
        "for kind in ('jsonl', 'chat'):\n"
        "    result = CliRunner().invoke(cli, [*arguments, kind])\n"
        "    assert result.exit_code == 0, result.output\n"
        "print({'torch', 'transformers', 'pyarrow'} & set(sys.modules) or 'light')\n"
        "sys.modules['pyarrow'] = None\n"
        "print(CliRunner().invoke(cli, [*arguments, 'parquet']).exception)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    light, missing = finished.stdout.strip().split("\n", 1)
    assert light == "light", finished.stdout + finished.stderr
    assert missing == "Parquet needs pyarrow\n  -> pip install 'quartet-rl[parquet]'"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["replay.demonstrations=x.jsonl"], "replay.demonstrations needs a pool"),
        (
            ["replay.demonstrations=x.jsonl", "replay.name=success_pool"],
            f"the file replay.demonstrations = '{Path.cwd()}/x.jsonl' does not exist",
        ),
    ],
)
def test_demonstrations_are_looked_for_at_once(recipe_path, overrides, message):
    refused = quartet("train", recipe_path, "--dry-run", *(f"--set={override}" for override in overrides))
    assert refused.returncode == 2
    assert message in refused.stderr


def test_a_wrong_demonstration_ends_the_run_before_it_begins(recipe_path, tmp_path):
    file = tmp_path / "demos.jsonl"
    file.write_text('{"messages": [], "family": "fixed"}\n')
    settings = ("--set", f"replay.demonstrations={file}", "--set", "replay.name=success_pool")
    refused = quartet("train", recipe_path, "--run-dir", tmp_path / "run", *settings)
    assert refused.returncode == 2
    assert f"{file}:1 is not a chat that names its task: " in refused.stderr and "Traceback" not in refused.stderr
    assert not (tmp_path / "run" / "logs" / "trainer.jsonl").exists()


def test_a_policy_folder_needs_tasks_to_be_evaluated_on(bandit_policy):
    refused = quartet("eval", bandit_policy)
    assert refused.returncode == 2
    assert "--recipe" in refused.stderr


@pytest.mark.slow
def test_a_taken_port_is_named(recipe_path, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = quartet("train", recipe_path, "--run-dir", tmp_path / "run", "--set", f"runtime.engine_port={port}")
    assert refused.returncode == 4
    assert str(port) in refused.stderr


@pytest.mark.slow
def test_a_missing_browser_is_named(tmp_path, bandit_policy, monkeypatch):
    recipe = bandit_recipe(
        bandit_policy,
        env={"name": "miniwob", "suite": "miniwob-24", "families": ["click-test-2"]},
    )
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("QUARTET_CHROMIUM", raising=False)
    refused = quartet("train", path, "--run-dir", tmp_path / "run")
    assert refused.returncode == 4
    assert "no browser found" in refused.stderr
    assert "apt-get install chromium" in refused.stderr


def test_training_at_temperature_0_is_refused_at_once(recipe_path, tmp_path):
    refused = quartet("train", recipe_path, "--run-dir", tmp_path / "run", "--set", "rollout.temperature=0")
    assert refused.returncode == ConfigError.exit_code
    assert "nothing to compare" in refused.stderr and not (tmp_path / "run").exists()


FULL_DISK = """
import resource, sys
from quartet.cli import main

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
sys.argv = ["quartet", "train", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
def test_a_full_disk_is_explained_wherever_it_is_met(recipe_path, tmp_path):
    arguments = [str(recipe_path), "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == SetupError.exit_code
    assert "cannot write" in done.stderr and "free some space" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("--set", "evaluation.before_and_after=false"),
        ("--set", "evaluation.before_and_after=true"),
        ("--set", "evaluation.before_and_after=true", "--set", "runtime.kind=synchronous"),
    ],
)
def test_a_run_that_a_full_disk_ended_says_so_and_evaluates_no_further(recipe_path, tmp_path, settings):
    run, full = tmp_path / "run", ("--set", "disk.min_free_megabytes=1000000000", "--set", "admission.max_lag=0")
    done = quartet("train", recipe_path, "--run-dir", run, *full, *settings)
    assert done.returncode == SetupError.exit_code
    assert "MB are free" in done.stderr
    assert json.loads((run / "summary.json").read_text())["stop_reason"].startswith(STOPPED_BY_DISK)
    with closing(Ledger.open(run)) as ledger:
        assert not any(tag.startswith("after") for tag in ledger.evaluations.admitted())


def test_a_control_without_demonstrations_is_refused_at_once(recipe_path):
    done = quartet("train", recipe_path, "--dry-run", "--set", "evaluation.supervised_control=true")
    assert done.returncode == 2
    assert "sft.data" in done.stderr
