"""Whole runs of a recipe: a small one is trained and stored, and its tables show what was measured."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.raw_results import RawResults
from benchmarks.runs.__main__ import main
from benchmarks.runs.views import Summary, families_table, mean, seeds_table


def stored(folder: Path, successes: list[float], blind: float | None = None, settings: tuple[str, ...] = ()) -> Path:
    """Store runs with these successes after training, on two families whose mean they are."""
    raw = RawResults(folder / "runs_miniwob.jsonl", Summary)
    for seed, success in enumerate(successes, 10):
        per_task: dict[str, dict[str, float | None]] = {
            "easy": {"before": 0.5, "after": min(1.0, 2 * success)},
            "hard": {"before": 0.0, "after": max(0.0, 2 * success - 1)},
        }
        summary = Summary(
            stop_reason="max_rollouts",
            success_before=0.25,
            success_after=success,
            success_before_sampled=0.2,
            success_after_sampled=success,
            success_undemonstrated_before=None,
            success_undemonstrated_after=None,
            success_before_blind=blind,
            success_after_blind=blind,
            per_task=per_task,
            rollouts_to_target=None,
            rollouts_finished=6000,
            train_steps=70,
            replayed=0,
            dropped_groups={},
            train_seconds=60.0,
            lost=0,
            trained_twice=0,
        )
        raw.add({"seed": seed, "settings": list(settings)}, summary)
    return raw.file


def test_seeds_have_rows_and_a_mean_with_student_s_interval(tmp_path: Path):
    """Mean 80, standard deviation 10, t(2) = 4.303: half of the interval is 4.303 * 10 / sqrt(3) = 24.8."""
    file = stored(tmp_path, [0.7, 0.8, 0.9])
    assert mean(file) == "80.0 % (55.2 to 104.8)"
    lines = seeds_table(file).splitlines()
    assert lines[0] == (
        "| seed | before, greedy | after, greedy | before, sampled | after, sampled | rollouts | train steps |"
    )
    assert lines[2] == "| 10 | 25.0 % | 70.0 % | 20.0 % | 70.0 % | 6,000 | 70 |"
    assert "80.0 % (55.2 to 104.8)" in lines[-1]


def test_blind_evaluations_are_columns_where_they_exist(tmp_path: Path):
    assert "blind, after" in seeds_table(stored(tmp_path, [0.7], blind=0.1))


def test_runs_with_other_settings_have_tables_of_their_own(tmp_path: Path):
    stored(tmp_path, [0.7, 0.8, 0.9])
    file = stored(tmp_path, [0.5], settings=("engine.device=cuda", "train.device=cuda"))
    before, after = seeds_table(file).split("\n\nWith `engine.device=cuda`, `train.device=cuda`:\n\n")
    assert before.startswith("As the recipe is:\n\n| seed |")
    assert "80.0 % (55.2 to 104.8)" in before
    assert after.splitlines()[-1].startswith("| 10 | 25.0 % | 50.0 %")
    assert families_table(file).endswith("| easy | 50 | 100 |\n| hard | 0 | 0 |")
    assert mean(file) == "50.0 %"
    assert mean(stored(tmp_path, [0.7, 0.8, 0.9])) == "80.0 % (55.2 to 104.8)", "those measured last"


def test_families_are_sorted_by_success_after_training(tmp_path: Path):
    lines = families_table(stored(tmp_path, [0.7, 0.8])).splitlines()
    assert lines[2:] == ["| easy | 50 | 100 / 100 |", "| hard | 0 | 40 / 60 |"]


@pytest.mark.slow
@pytest.mark.campaign
def test_a_recipe_is_trained_once_per_seed_and_stored(tmp_path: Path):
    few = ("train.max_train_steps=1", "evaluation.episodes_per_family=1")
    options = [option for setting in few for option in ("--set", setting)]
    where = ["--results", str(tmp_path), "--runs", str(tmp_path / "runs")]
    done = CliRunner().invoke(main, ["first", "--seeds", "7", *options, *where, "--json"], catch_exceptions=False)
    ((key, summary),) = RawResults(tmp_path / "runs_first.jsonl", Summary).read()
    assert key == {"seed": 7, "settings": list(few)}
    assert (summary.train_steps, summary.lost, summary.trained_twice) == (1, 0, 0)
    assert json.loads(done.stdout.splitlines()[-1])["recipe"] == "first"
    again = CliRunner().invoke(main, ["first", "--seeds", "7", *options, *where], catch_exceptions=False)
    assert again.output == "", "a measured seed is skipped"
