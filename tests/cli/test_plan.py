"""`quartet plan`: the result for scripts, the limit that a user can change, and errors with their next step."""

import json

import pytest
from click.testing import CliRunner

from quartet.cli import cli
from quartet.errors import ConfigError

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


def test_the_summary_says_what_limits_and_what_to_change():
    options = ["plan", "miniwob", "--gpus", "64", "--desktops", "500"]
    shown = CliRunner().invoke(cli, options, catch_exceptions=False).output
    assert "limited by: admission" in shown
    assert "-> raise train.groups_per_batch or admission.max_lag" in shown
    assert "GPUs reach 99 % of this rate" in shown
    assert "give the means: --turns --prompt-tokens --response-tokens --context-tokens" in shown


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--gpus", "1"),
        ("--gpus", "1000000000000"),
        ("--desktops", "0"),
        ("--gpu", "abacus"),
        ("--parameters", "nan"),
        ("--parameters", "inf"),
        ("--turns", "0.5"),
        ("--turns", "1e300"),
        ("--step-seconds", "nan"),
        ("--step-seconds", "-1"),
        ("--kept-share", "0"),
        ("--trainer-efficiency", "1.5"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused(option, value):
    options = {"--gpus": "8", "--desktops": "8"} | {option: value}
    result = CliRunner().invoke(cli, ["plan", "miniwob", *(word for pair in options.items() for word in pair)])
    assert result.exit_code == 2
    assert f"'{option}'" in result.output


def test_a_response_longer_than_the_context_is_refused():
    options = ["plan", "miniwob", "--gpus", "8", "--desktops", "8", "--response-tokens", "1e9"]
    with pytest.raises(ConfigError, match="do not fit a context"):
        CliRunner().invoke(cli, options, catch_exceptions=False)


def test_environments_without_delay_are_planned():
    assert plan("--gpus", "8", "--desktops", "8", "--gpu", "h100", "--step-seconds", "0", "--reset-seconds", "0")
