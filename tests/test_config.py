"""Recipes: bad input is refused with a hint, good input survives a round trip."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.recipe.familiar import FAMILIAR
from quartet.recipe.file import (
    apply_override,
    changed_settings,
    flatten,
    load_recipe,
    parse_recipe,
    refuse_changes,
    to_toml,
)
from quartet.registry import build
from quartet.types import LARGEST_TEMPERATURE

MINIMAL = {"name": "x", "model": {"path": "m"}, "env": {"name": "bandit"}}
APRIL = {"straggler": "april"}


def test_resolved_recipe_reads_back_unchanged():
    recipe = parse_recipe(MINIMAL | {"rollout": {"temperature": 0.7}}, "test")
    assert parse_recipe(tomllib.loads(to_toml(recipe)), "test") == recipe


@pytest.mark.slow
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30), seed=st.integers(-(2**60), 2**60))
def test_any_text_and_seed_survive_the_round_trip(text, seed):
    recipe = parse_recipe(MINIMAL | {"engine": {"name": "vllm", "python": text}, "seed": seed}, "test")
    assert parse_recipe(tomllib.loads(to_toml(recipe)), "test") == recipe


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/x", "a/b", "x\n", "x\x00", "x\x1b[2J", "\u202ex", "x" * 121])
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(ConfigError, match=r"name.*cannot name a folder"):
        parse_recipe(MINIMAL | {"name": name}, "test")


@pytest.mark.parametrize("name", ["x", "DART (paper)", "größe 0.5", ".hidden", "試験", "lag=4, lr=1e-5"])
def test_other_names_are_free(name):
    assert parse_recipe(MINIMAL | {"name": name}, "test").name == name


def test_infinite_limit_survives_the_round_trip():
    recipe = parse_recipe(MINIMAL | {"train": {"max_seconds": float("inf")}}, "test")
    assert parse_recipe(tomllib.loads(to_toml(recipe)), "test") == recipe


def test_misspelt_key_names_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown key 'env\.sesions'\. Did you mean 'env\.sessions'"):
        parse_recipe(MINIMAL | {"env": {"name": "bandit", "sesions": 3}}, "recipe.toml")


def test_misspelt_section_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'rollout'"):
        parse_recipe(MINIMAL | {"rolout": {}}, "recipe.toml")


@pytest.mark.parametrize(
    "override",
    [
        *(
            "train.max_seconds=true",
            "train.max_train_steps=true",
            "rollout.temperature=false",
            "disk.keep_policies=true",
        ),
        *("control.horizon={name='staged', max_turns=[4, true]}", "loss.terms=[{name='kl', weight=true}]"),
        *("train.device=true", "model.freeze_vision=1.5"),
    ],
)
def test_a_boolean_is_no_number_and_no_text(override):
    with pytest.raises(ConfigError, match="must be"):
        parse_recipe(MINIMAL, "test", [override])


@pytest.mark.parametrize("temperature", [1000.5, float("inf"), float("nan"), -1.0])
def test_a_temperature_that_no_record_may_have_is_refused(temperature):
    assert parse_recipe(MINIMAL | {"rollout": {"temperature": LARGEST_TEMPERATURE}}, "test")
    with pytest.raises(ConfigError, match=r"rollout\.temperature"):
        parse_recipe(MINIMAL | {"rollout": {"temperature": temperature}}, "test")


def test_a_setting_that_takes_both_takes_a_boolean():
    recipe = parse_recipe(MINIMAL, "test", ["model.template_arguments={enable_thinking=true, most=1}"])
    assert recipe.model.template_arguments == {"enable_thinking": True, "most": 1}
    assert recipe.model.template_arguments["enable_thinking"] is True


def test_value_out_of_range_names_the_key():
    with pytest.raises(ConfigError, match=r"train\.learning_rate"):
        parse_recipe(MINIMAL | {"train": {"learning_rate": -1.0}}, "recipe.toml")


def test_training_seeds_must_not_reach_the_held_out_ones():
    with pytest.raises(ConfigError, match="held-out"):
        parse_recipe(MINIMAL | {"evaluation": {"first_seed": 10}}, "recipe.toml")


def test_a_target_success_needs_evaluations_during_training():
    with pytest.raises(ConfigError, match=r"set evaluation\.train_steps_per_evaluation"):
        parse_recipe(MINIMAL | {"train": {"target_success": 0.9}}, "recipe.toml")


def test_an_override_with_null_removes_a_limit():
    data = MINIMAL | {"train": {"target_success": 0.9, "max_rollouts": 10}}
    apply_override(data, "train.target_success=null")
    limits = parse_recipe(data, "recipe.toml").train
    assert (limits.target_success, limits.max_rollouts) == (None, 10)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"control": {"allocator": "dynamic"}, "admission": {"min_rollouts_per_group": 5}}, "must lie between"),
        ({"control": {"allocator": "dynamic", "rollouts_per_group": 3}}, "must lie between"),
        ({"control": {"allocator": "dynamic", "rollouts_per_group": 64}}, "statistics_window_rollouts"),
        (
            {"engine": {"replicas": 2}, "runtime": {"engine_port": 8000}},
            "several engines cannot listen on runtime.engine_port",
        ),
        ({"engine": {"replicas": 2}, "runtime": {"kind": "synchronous"}}, "needs runtime.kind = 'processes' or 'ray'"),
        (
            {"rollout": {"max_tokens": 64}, "engine": {"max_context_tokens": 64}},
            "max_tokens = 64 leaves no room .* = 64",
        ),
        ({"control": {"rollouts_per_group": 1}}, "rollouts_per_group = 1 is smaller than .*min_rollouts_per_group = "),
        ({"admission": {"schedule": "one_step_off", "max_lag": 0}}, "a lag of 1"),
        (APRIL, "batch_synchronous"),
        (APRIL | {"admission": {"schedule": "batch_synchronous", "max_lag": 0}}, "max_lag >= 1"),
        (APRIL | {"admission": {"schedule": "batch_synchronous", "on_late": "wait"}}, "wait for each other"),
        (
            {"filters": [{"name": "accuracy_band", "min_success": 0.5, "max_success": 0.4}]},
            "every group would be dropped",
        ),
    ],
)
def test_settings_that_would_starve_a_run_are_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        parse_recipe(MINIMAL | sections, "test")


@pytest.mark.parametrize("line", ["top_p = 0.9", "top_k = 50", "min_tokens = 2"])
def test_training_on_truncated_sampling_is_refused_when_the_recipe_is_read(line, tmp_path):
    path, name = tmp_path / "recipe.toml", line.partition(" ")[0]
    path.write_text(to_toml(parse_recipe(MINIMAL, "test")))
    setting = line.replace(" ", "")
    with pytest.raises(ConfigError, match=rf"--set rollout\.{setting}: .*samples from a part .*evaluation\.{name}"):
        load_recipe(path, [f"rollout.{setting}"])
    assert f"{name} = {line.rpartition(' ')[2]}" in to_toml(load_recipe(path, [f"evaluation.{setting}"]))


def test_recipes_of_runs_that_began_with_whole_sampling_are_read():
    assert parse_recipe(MINIMAL | {"rollout": {"top_p": 1.0}}, "test") == parse_recipe(MINIMAL, "test")
    with pytest.raises(ConfigError, match=r"test: rollout: must be a table of settings$"):
        parse_recipe(MINIMAL | {"rollout": 3}, "test")


def test_a_response_can_be_as_long_as_it_must_be():
    with pytest.raises(ConfigError, match="min_tokens is larger"):
        parse_recipe(MINIMAL | {"evaluation": {"min_tokens": 33}}, "test")


@pytest.mark.parametrize(
    ("schedule", "groups"), [("rollout_wise", 12), ("task_wise", 12), ("one_step_off", 8), ("batch_synchronous", 4)]
)
def test_the_schedule_says_how_many_groups_are_on_their_way(schedule, groups):
    sections = {"admission": {"schedule": schedule, "max_lag": 2}, "train": {"groups_per_batch": 4}}
    assert parse_recipe(MINIMAL | sections, "test").max_groups_ahead == groups


def test_recycled_tokens_stay_within_the_lag_bound_by_default():
    sections = {"straggler": {"name": "april"}, "admission": {"schedule": "batch_synchronous", "max_lag": 3}}
    recipe = parse_recipe(MINIMAL | sections, "test")
    assert build(recipe.straggler, recipe).max_recycles == 3
    recipe = parse_recipe(MINIMAL | sections | {"straggler": {"name": "april", "max_recycles": 0}}, "test")
    assert build(recipe.straggler, recipe).max_recycles == 0


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train={epochs=2}", {"train": {"max_seconds": 60, "epochs": 2}}),
        ("control={sampler={exponent=3}}", {"control": {"sampler": {"name": "vade", "exponent": 3}}}),
        ("control.sampler={exponent=3}", {"control": {"sampler": {"name": "vade", "exponent": 3}}}),
        ("control.sampler={name='vade'}", {}),
        ("control.sampler={name='uniform'}", {"control": {"sampler": {"name": "uniform"}}}),
        ("control.sampler=uniform", {"control": {"sampler": "uniform"}}),
        ("credit={negative_weight=0.5}", {"credit": {"name": "rloo", "negative_weight": 0.5}}),
        ("credit={name='grpo'}", {"credit": {"name": "grpo"}}),
    ],
)
def test_a_table_as_an_override_changes_the_settings_that_it_names(override, expected):
    data = {
        "train": {"max_seconds": 60, "epochs": 1},
        "control": {"sampler": {"name": "vade", "exponent": 2}},
        "credit": "rloo",
    }
    unchanged = dict(data)
    apply_override(data, override)
    assert data == unchanged | expected


def test_overrides_are_read_as_toml_or_text():
    data = {"env": {"name": "bandit"}}
    for override in ("env.sessions=3", "env.families=['a', 'b']", "env.suite=miniwob-24", "train.epochs=2"):
        apply_override(data, override)
    assert data == {
        "env": {"name": "bandit", "sessions": 3, "families": ["a", "b"], "suite": "miniwob-24"},
        "train": {"epochs": 2},
    }


def test_override_of_an_unknown_key_is_refused(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(parse_recipe(MINIMAL, "test")))
    with pytest.raises(
        ConfigError, match=r"^--set train\.epoch=2: unknown key 'train\.epoch'\. Did you mean 'train\.epochs'"
    ):
        load_recipe(path, ["train.epoch=2"])
    with pytest.raises(ConfigError, match=r"Did you mean 'admission\.max_lag'"):
        load_recipe(path, ["train.max_lag=2"])
    with pytest.raises(ConfigError, match="it is now 'filters'"):
        load_recipe(path, ["filter.names=broken"])
    with pytest.raises(ConfigError, match=r"^--set control\.horizon\.staged\.max_turns=\[4, 8\]: .*ascend from 0"):
        load_recipe(path, ["control.horizon=staged", "control.horizon.staged.max_turns=[4, 8]"])
    with pytest.raises(ConfigError) as refused:
        load_recipe(path, ["train.epochs=1", "control.rollouts_per_group=1"])
    assert str(refused.value) == (
        "--set control.rollouts_per_group=1: control.rollouts_per_group = 1 is smaller than "
        "admission.min_rollouts_per_group = 2\n  -> raise the first, or lower the second"
    )
    with pytest.raises(ConfigError, match=r"^--set train.epochs=0: train\.epochs = 0: must be greater than 0"):
        load_recipe(path, ["train.epochs=0"])


def test_broken_toml_and_missing_file_say_so(tmp_path):
    broken = tmp_path / "recipe.toml"
    broken.write_text("name = ")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(broken)
    with pytest.raises(ConfigError, match="no recipe at"):
        load_recipe(tmp_path / "missing.toml")


def test_resume_may_change_limits_but_not_what_is_learned():
    old = parse_recipe(MINIMAL, "test")
    longer = old.model_copy(update={"train": old.train.model_copy(update={"max_train_steps": 5})})
    refuse_changes(old, longer)
    wider = {"max_tokens_per_microbatch": 8192}
    refuse_changes(old, old.model_copy(update={"train": old.train.model_copy(update=wider)}))
    other = old.model_copy(update={"seed": 1})
    assert changed_settings(old, other) == ["seed"]
    with pytest.raises(ConfigError, match="cannot change seed at resume"):
        refuse_changes(old, other)


def test_resume_may_not_change_the_order_of_parts():
    """A filter sees the members that the filters before it kept."""
    names = ["mixed_outcome", "short_failures"]
    old, new = (parse_recipe(MINIMAL | {"filters": order}, "test") for order in (names, names[::-1]))
    assert changed_settings(old, new) == ["filters"]
    with pytest.raises(ConfigError, match="cannot change filters at resume"):
        refuse_changes(old, new)
    fewer = parse_recipe(MINIMAL | {"filters": names[:1]}, "test")
    assert changed_settings(old, fewer) == ["filters", "filters.short_failures.min_turns"]


def test_old_keys_of_all_sections_and_parts_are_reported_at_once():
    old = {
        "filter": {"names": ["broken"]},
        "advantage": {"name": "grpo"},
        "control": {"vade": {"exponent": 2}},
        "observe": {"prometheus_port": 9000},
        "engine": {"kind": "torch"},
        "replay": {"name": "success_pool", "ruel": "stored"},
    }
    with pytest.raises(ConfigError) as refused:
        parse_recipe(MINIMAL | old, "test")
    named = ("filter", "advantage", "control.vade", "observe.prometheus_port", "engine.kind", "replay.ruel")
    assert [key for key in named if f"unknown key '{key}'" not in str(refused.value)] == []
    assert str(refused.value).count("unknown key") == len(named)


HEAVY = "{'torch', 'transformers', 'sqlalchemy', 'aiohttp', 'matplotlib'} & set(sys.modules)"


@pytest.mark.slow
def test_configuration_and_help_import_nothing_heavy():
    program = f"""
import sys, quartet.config, quartet.types, quartet.runtime.check.training
from click.testing import CliRunner
from quartet.cli import cli
assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
print({HEAVY} or "light")
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.stdout.strip() == "light", finished.stdout + finished.stderr


def undocumented(model: type[BaseModel], prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            found += undocumented(info.annotation, f"{prefix}{name}.")
        if prefix and not info.description:
            found.append(prefix + name)
    return found


def test_every_setting_is_documented():
    assert undocumented(Recipe) == []


@pytest.mark.parametrize("name", FAMILIAR)
def test_setting_by_its_name_in_another_framework_is_refused_with_its_name_here(name):
    with pytest.raises(ConfigError, match=f"unknown key 'train.{name}'\n  -> here it is called {FAMILIAR[name]}$"):
        parse_recipe(MINIMAL | {"train": {name: 1}}, "test")


def test_setting_that_a_familiar_name_stands_for_exists():
    terms = {"loss": {"terms": ["ppo_clip", "kl", "entropy"]}}
    known = flatten(parse_recipe(MINIMAL | terms, "test").model_dump())
    assert {one for names in FAMILIAR.values() for one in names.split(" and ")} <= known.keys()


def test_recipe_of_a_newer_form_is_refused_with_a_way_out():
    with pytest.raises(
        ConfigError, match=r"config_version = 9 belongs to a newer Quartet\n  -> install that version, or rewrite"
    ):
        parse_recipe(MINIMAL | {"config_version": 9}, "test")


def test_missing_setting_is_named():
    with pytest.raises(ConfigError, match=r"model is missing\n  -> add it"):
        parse_recipe({key: value for key, value in MINIMAL.items() if key != "model"}, "test")


PLAYERS = {"policies": {"even": {}, "odd": {"source": "there"}, "judge": {"trained": False}}}


def test_a_recipe_without_policies_has_one_called_main():
    recipe = parse_recipe(MINIMAL, "test")
    assert (recipe.trained_policies, recipe.frozen_policies) == (["main"], [])
    assert recipe.trainer_modules == {"trainer": "main"} and recipe.policy_sources["main"].source == recipe.model.path
    assert "[policies" not in to_toml(recipe), "its file says nothing of what it does not have"
    assert recipe.starting_from("/p").model.path == "/p"


def test_several_policies_have_a_source_each_and_survive_the_round_trip():
    recipe = parse_recipe(MINIMAL | PLAYERS, "test")
    assert (recipe.trained_policies, recipe.frozen_policies) == (["even", "odd"], ["judge"])
    assert recipe.trainer_modules == {"trainer-even": "even", "trainer-odd": "odd"}
    sources = [Path(one.source).name for one in recipe.policy_sources.values()]
    assert sources == ["m", "there", "m"], "a table without a source takes model.path"
    assert parse_recipe(tomllib.loads(to_toml(recipe)), "test") == recipe
    assert recipe.starting_from("/p").policy_sources["even"].source == "/p"


def test_a_source_begins_at_the_recipes_folder(tmp_path):
    (tmp_path / "recipe.toml").write_text(to_toml(parse_recipe(MINIMAL, "test")) + '[policies.a]\nsource = "there"\n')
    recipe = load_recipe(tmp_path / "recipe.toml", ["policies.a.trained=true"])
    assert recipe.policies["a"].source == str(tmp_path / "there")


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ({"Even": {}}, "'Even' cannot name a policy"),
        ({"a_b": {}}, "'a_b' cannot name a policy"),
        ({"a": {"trained": False}}, "every policy is frozen"),
        ({"a": {"weights": "lora"}}, r"policies\.a\.weights: adapters are a setting of all trained policies"),
        ({"a": {"weights": "half"}}, "'half' is not a choice of weights"),
        ({"a": {"traned": True}}, r"unknown key 'policies\.a\.traned'\. Did you mean 'policies\.a\.trained'"),
        ({"a": "there"}, "each policy is a table"),
        ({"source": "there"}, "each policy is a table"),
        (["a"], "each policy is a table"),
    ],
)
def test_wrong_policies_are_refused_with_a_hint(policies, message):
    with pytest.raises(ConfigError, match=message):
        parse_recipe(MINIMAL | {"policies": policies}, "test")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"runtime": {"kind": "synchronous"}}, "several policies need runtime.kind = 'processes'"),
        ({"engine": {"name": "vllm"}}, "3 policies need an embedded engine"),
        ({"straggler": "april", "admission": {"schedule": "batch_synchronous"}}, "april pauses the rollouts of one"),
    ],
)
def test_settings_unfit_for_several_policies_are_rejected(sections, message):
    with pytest.raises(ConfigError, match=message):
        parse_recipe(MINIMAL | PLAYERS | sections, "test")


def test_more_policies_than_players_are_refused():
    several = {"policies": {"a": {}, "b": {}, "c": {}}, "rollout": {"loop": "alternate"}}
    with pytest.raises(ConfigError, match=r"(?s)trains 3 policies.*set rollout.loop.players=3"):
        parse_recipe(MINIMAL | several, "test")
    several["policies"]["c"] = {"trained": False}
    assert parse_recipe(MINIMAL | several, "test").trained_policies == ["a", "b"]


def test_policies_do_not_change_at_resume():
    old, new = parse_recipe(MINIMAL, "test"), parse_recipe(MINIMAL | {"policies": {"a": {}}}, "test")
    with pytest.raises(ConfigError, match=r"policies\.a\.trained"):
        refuse_changes(old, new)
