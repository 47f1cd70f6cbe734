"""The synchronous runtime: the same seed gives the same run, bit for bit."""

import hashlib
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from benchmarks.bandit import bandit_recipe
from quartet.errors import CheckpointError, InterruptedByUser
from quartet.ledger import Ledger
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import load_model
from quartet.recipe.file import to_toml
from quartet.report.check import check_ledger
from quartet.runtime.run import run_recipe
from tests.command import quartet
from tests.live_runs import slow_learner, train_step
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def run(folder, policy, seed, *, max_train_steps=3, resume=False):
    recipe = bandit_recipe(
        policy,
        runtime={"kind": "synchronous"},
        admission={"max_lag": 0},
        train={"max_train_steps": max_train_steps, "max_seconds": 600.0, "learning_rate": 1e-4},
        evaluation={"episodes_per_family": 4},
    ).model_copy(update={"seed": seed})
    summary = run_recipe(recipe, folder, resume=resume, fresh=False, quiet=True)
    ledger = Ledger.open(folder)
    weights = [
        hashlib.sha256((folder / policy.path / "model.safetensors").read_bytes()).hexdigest()
        for policy in ledger.policies.on_disk()
    ]
    ledger.close()
    return summary, weights


def test_one_seed_gives_one_run_and_another_seed_another(tmp_path, bandit_policy):
    first, first_weights = run(tmp_path / "a", bandit_policy, seed=0)
    second, second_weights = run(tmp_path / "b", bandit_policy, seed=0)
    _, other_weights = run(tmp_path / "c", bandit_policy, seed=1)
    assert first_weights == second_weights
    assert len(set(first_weights)) == len(first_weights) == 4
    assert other_weights[1:] != first_weights[1:]
    timeless = ("success_before", "success_after", "rollouts_finished", "statuses", "lag_histogram", "dropped_groups")
    assert {key: first[key] for key in timeless} == {key: second[key] for key in timeless}
    assert first["lag_histogram"] == {"0": sum(first["lag_histogram"].values())}
    assert first["lost"] == first["trained_twice"] == 0


def test_a_resumed_run_goes_back_behind_a_damaged_policy(tmp_path, bandit_policy):
    run(tmp_path / "run", bandit_policy, seed=0)
    newest = max((tmp_path / "run" / "policies").iterdir())
    for file in newest.iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    summary, _ = run(tmp_path / "run", bandit_policy, seed=0, max_train_steps=4, resume=True)
    assert (summary["train_steps"], summary["lost"], summary["trained_twice"]) == (4, 0, 0)
    ledger = Ledger.open(tmp_path / "run")
    assert "recovery_point_damaged" in [event.kind for event in ledger.events()]
    assert check_ledger(ledger).findings == []
    ledger.close()


@pytest.mark.parametrize("by", ["quartet stop", "SIGINT"])
def test_a_signal_ends_the_run_cleanly_and_it_continues(tmp_path, bandit_policy, by):
    recipe = slow_learner(bandit_policy, 1000, runtime={"kind": "synchronous"}, admission={"max_lag": 0})
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    run_dir, start = tmp_path / "run", [sys.executable, "-m", "quartet", "train"]
    training = subprocess.Popen(
        [*start, tmp_path / "recipe.toml", "--run-dir", run_dir, "--json"], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: train_step(run_dir) >= 1)
        if by == "quartet stop":
            assert quartet("stop", run_dir).returncode == 0
        else:
            training.send_signal(signal.SIGINT)
        said = training.communicate(timeout=60)[1]
    finally:
        training.kill()
    assert training.returncode == InterruptedByUser.exit_code
    assert f"stopped by {'the user' if by == 'SIGINT' else 'SIGTERM'}" in said and "Traceback" not in said
    assert f"continue with `quartet train {run_dir}/config.toml --run-dir {run_dir} --resume`" in said
    reached = train_step(run_dir)
    more = {"train": recipe.train.model_copy(update={"max_train_steps": reached + 1})}
    resumed = run_recipe(recipe.model_copy(update=more), run_dir, resume=True, fresh=False, quiet=True)
    assert (resumed["train_steps"], resumed["lost"], resumed["trained_twice"]) == (reached + 1, 0, 0)


def test_the_policy_is_proved_in_the_engines_type_before_it_serves(tmp_path, bandit_policy):
    """As the engine's process does it: this canary is passed in bfloat16 and fails in float32."""
    folder = tmp_path / "policy"
    shutil.copytree(bandit_policy, folder)
    model = load_model(folder)
    write_canary(folder, model.to(torch.bfloat16), [fixed_sequence(model.config.vocab_size, 64)])
    runtime, new = {"kind": "synchronous"}, {"resume": False, "fresh": False}
    once = {"train": {"max_train_steps": 1}, "evaluation": {"before_and_after": False}, "admission": {"max_lag": 0}}
    with pytest.raises(CheckpointError, match="log-probs of the canary"):
        run_recipe(bandit_recipe(folder, runtime=runtime, **once), tmp_path / "float32", quiet=True, **new)
    bfloat16 = bandit_recipe(folder, runtime=runtime, engine={"dtype": "bfloat16"}, **once)
    run_recipe(bfloat16, tmp_path / "bfloat16", quiet=True, **new)
