"""`quartet plan`: the result for scripts, the limit that a user can change, and errors with their next step."""

import json

from click.testing import CliRunner

from quartet.cli import cli

LARGE = ["--parameters", "7.6e9", "--kv-bytes-per-token", "57344", "--turns", "20", "--response-tokens", "200"]


def plan(*options: str) -> dict:
    result = CliRunner().invoke(cli, ["plan", "miniwob", *options, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_the_best_split_uses_all_gpus_and_every_input_is_reported():
    found = plan("--gpus", "64", "--desktops", "500", *LARGE)
    best = found["best_split"]
    assert best["engine_gpus"] + best["trainer_gpus"] == 64
    assert best["engine_gpus"] == best["engines"] * best["gpus_per_engine"]
    assert found["rollouts_per_hour"] > 0
    assert found["inputs"]["parameters"] == 7.6e9
    assert found["inputs"]["turns"] == 20


def test_a_larger_batch_moves_the_limit_from_admission():
    few = plan("--gpus", "64", "--desktops", "500", *LARGE, "--set", "train.groups_per_batch=2")
    many = plan("--gpus", "64", "--desktops", "500", *LARGE, "--set", "train.groups_per_batch=512")
    assert few["limited_by"] == "admission"
    assert many["limited_by"] != "admission"
    assert many["rollouts_per_hour"] > few["rollouts_per_hour"]


def test_a_recipes_own_model_needs_one_engine():
    found = plan("--gpus", "2", "--desktops", "8")
    assert found["best_split"] == {"engines": 1, "gpus_per_engine": 1, "engine_gpus": 1, "trainer_gpus": 1}


def test_the_summary_says_that_nothing_was_measured():
    shown = CliRunner().invoke(cli, ["plan", "miniwob", "--gpus", "8", "--desktops", "8"], catch_exceptions=False)
    assert "no measurement" in shown.output
