"""`quartet eval --policy best`: a policy must be the best, and is not reported on the seeds that chose it."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.bandit import bandit_recipe
from quartet.cli import cli
from quartet.config import Recipe
from quartet.errors import ConfigError, InterruptedByUser, SetupError
from quartet.ledger import Ledger
from quartet.ledger.held_policy import deletable
from quartet.manager.evaluation import admit_evaluation
from quartet.recipe.file import to_toml
from quartet.runtime import run as runtime_run


def make_run(folder: Path, policy: Path, *, chosen_on: range) -> Path:
    """A run whose initial policy an evaluation on these seeds has marked as the best."""
    recipe = bandit_recipe(policy, evaluation={"episodes_per_family": 4})
    ledger = Ledger.create(folder)
    ledger.policies.register_initial(str(policy))
    admit_evaluation(ledger, recipe, ["fixed"], seeds=chosen_on, temperature=0.0, tag="during/1")
    ledger.groups.cancel_unfinished()
    ledger.policies.mark_best(0, 0.75)
    ledger.close()
    (folder / "config.toml").write_text(to_toml(recipe))
    return folder


def evaluate(run: Path) -> str:
    outcome = CliRunner().invoke(cli, ["eval", str(run), "--policy", "best"], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_seeds_that_chose_the_policy_are_refused_with_a_way_out(tmp_path, bandit_policy):
    """As runs of before have it: their evaluations during training took the first held-out seeds."""
    run = make_run(tmp_path / "run", bandit_policy, chosen_on=range(1_000_003, 1_000_005))
    with pytest.raises(ConfigError, match="was chosen on seeds 1,000,003 to 1,000,004") as refused:
        evaluate(run)
    assert "--set evaluation.first_seed=1000005" in str(refused.value)


def test_without_a_best_policy_an_evaluation_ends_as_an_export_does(tmp_path, bandit_policy):
    ledger = Ledger.create(tmp_path / "run")
    ledger.policies.register_initial(str(bandit_policy))
    ledger.close()
    (tmp_path / "run" / "config.toml").write_text(to_toml(bandit_recipe(bandit_policy)))
    for command in (("eval", tmp_path / "run"), ("export", tmp_path / "run", tmp_path / "output")):
        with pytest.raises(ConfigError, match=r"has marked a best policy of .*run") as refused:
            CliRunner().invoke(cli, [*map(str, command), "--policy", "best"], catch_exceptions=False)
        assert refused.value.advice == "use --policy latest"
    assert not (tmp_path / "run" / "evaluations").exists() and not (tmp_path / "output").exists()


@pytest.mark.slow
def test_the_best_policy_is_reported_on_seeds_that_did_not_choose_it(tmp_path, bandit_policy):
    run = make_run(tmp_path / "run", bandit_policy, chosen_on=range(1_500_000, 1_500_002))
    told = evaluate(run)
    assert "8 of 8 episodes have a result; seeds 1,000,000 to 1,000,003" in told
    (evaluation,) = (run / "evaluations").iterdir()
    ledger = Ledger.view(evaluation)
    assert ledger.evaluations.seeds("bandit", "eval/") == set(range(1_000_000, 1_000_004))
    ledger.close()
    summary = json.loads((evaluation / "summary.json").read_text())
    assert summary["seeds"] == [1_000_000, 1_000_003]
    assert summary["evaluations"]["greedy"] == {"asked": 4, "episodes": 4, "uncounted": {}}


@pytest.mark.parametrize("of_run", [True, False])
def test_the_run_does_not_delete_a_policy_during_its_evaluation(tmp_path, bandit_policy, monkeypatch, of_run):
    own = shutil.copytree(bandit_policy, tmp_path / "policy")  # other tests evaluate the shared one meanwhile
    run = make_run(tmp_path / "run", own, chosen_on=range(1_500_000, 1_500_002))
    found = []

    def see(_recipe: Recipe, policy: Path, _output: Path, *, quiet: bool) -> None:
        with deletable(policy) as is_free:
            found.append(is_free)
        raise ConfigError("enough is seen")

    monkeypatch.setattr(runtime_run, "evaluate_policy", see)
    named = [str(run)] if of_run else [str(own), "--recipe", str(run / "config.toml")]
    with pytest.raises(ConfigError, match="enough is seen"):
        CliRunner().invoke(cli, ["eval", *named], catch_exceptions=False)
    assert found == [False]
    with deletable(own) as is_free:
        assert is_free


@pytest.mark.parametrize(
    "error",
    [
        InterruptedByUser("stopped by the user", "continue with --resume"),
        SetupError("module 'env' cannot run: no disk\n  -> continue with --resume", "then continue with --resume"),
    ],
)
def test_an_evaluation_that_an_error_ends_does_not_advise_to_resume(bandit_policy, tmp_path, monkeypatch, error):
    def end(*_: object, quiet: bool) -> None:
        raise error

    run = make_run(tmp_path / "run", bandit_policy, chosen_on=range(1_500_000, 1_500_002))
    monkeypatch.setattr(runtime_run, "evaluate_policy", end)
    with pytest.raises(type(error), match="start the evaluation again") as ended:
        CliRunner().invoke(cli, ["eval", str(run)], catch_exceptions=False)
    assert "--resume" not in str(ended.value)
