"""The parts of a recipe: chosen by name, set in one table, complete in the resolved recipe, refused with a hint."""

import re
import tomllib
from pathlib import Path

import pytest

from quartet.config import Filter, Horizon
from quartet.env.environment.offline import EXAMPLE
from quartet.errors import ConfigError
from quartet.recipe.file import (
    changed_settings,
    load_recipe,
    parse_recipe,
    read_resolved,
    refuse_changes,
    to_toml,
    toml_lines,
)
from quartet.recipe.toml_text import toml_value
from quartet.recipe.upgrade import CONFIG_VERSION, upgraded
from quartet.registry import build
from quartet.run.run_dir import check_run_dir, prepare
from quartet.shipped import shipped_policies

MINIMAL = {"name": "x", "model": {"path": "/m"}, "env": {"name": "bandit"}}


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text('name = "x"\n[model]\npath = "m"\n[env]\nname = "bandit"\n')
    return path


def test_name_alone_and_table_choose_the_same_part():
    by_name = parse_recipe(MINIMAL | {"control": {"sampler": "vade"}}, "test")
    by_table = parse_recipe(MINIMAL | {"control": {"sampler": {"name": "vade", "exponent": 2.0}}}, "test")
    assert by_name == by_table
    assert by_name.control.sampler.settings == {"exponent": 2.0, "decay_sampled": 0.9, "decay_step": 0.995}


def test_settings_of_a_part_are_validated_once_per_load(file, monkeypatch):
    from pydantic import field_validator

    from quartet.manager.control.sampler.vade import VadeSampler

    seen = []

    class Counted(VadeSampler.Settings):
        @field_validator("exponent")
        @classmethod
        def _count(cls, value: float) -> float:
            seen.append(value)
            return value

    monkeypatch.setattr(VadeSampler, "Settings", Counted)
    load_recipe(file, ["control.sampler={name='vade', exponent=1.0}"])
    assert seen == [1.0]


def test_resolved_recipe_holds_every_setting_of_its_parts_and_reads_back(file):
    chosen = ["control.sampler.name=vade", "control.sampler.exponent=1", "filters=['overlong', 'mixed_outcome']"]
    recipe = load_recipe(file, chosen)
    file.write_text(to_toml(recipe))
    assert (
        '[control.sampler]\nname = "vade"\ndecay_sampled = 0.9\ndecay_step = 0.995\nexponent = 1.0' in file.read_text()
    )
    assert load_recipe(file) == recipe
    assert changed_settings(read_resolved(file), recipe) == []


def test_resolved_recipe_keeps_a_limit_that_null_removes(file):
    data = MINIMAL | {"env": {"name": "offline", "data": str(EXAMPLE), "max_patches": 1}}
    recipe = parse_recipe(data, "test", ["env.max_patches=null"])
    file.write_text(to_toml(recipe))
    assert build(load_recipe(file).env).settings.max_patches is None
    assert changed_settings(load_recipe(file), recipe) == []


def test_resolved_recipe_quotes_keys_that_are_not_bare(file):
    texts = {"miniwob/click-menu/3": "Hover first", 'a "quoted" key.é': "x", "": "y", "click-menu_3": "z"}
    recipe = parse_recipe(MINIMAL | {"rollout": {"guidance": {"name": "text", "texts": texts}}}, "test")
    file.write_text(to_toml(recipe))
    assert load_recipe(file) == recipe
    assert read_resolved(file).rollout.guidance.settings["texts"] == texts
    assert tomllib.loads(f"inline = {toml_value(texts)}")["inline"] == texts, "within a list a table is inline"


def test_override_reaches_a_part_in_a_list(file):
    recipe = load_recipe(file, ["control.horizon=['suite', 'staged']", "control.horizon.staged.max_turns=[4]"])
    assert recipe.control.horizon[1].settings["max_turns"] == [4]
    recipe = load_recipe(file, ["control.horizon=staged", "control.horizon.staged.max_turns=[5]"])
    assert recipe.control.horizon == [Horizon.model_validate({"name": "staged", "train_steps": [0], "max_turns": [5]})]
    with pytest.raises(ConfigError, match="the list has no part 'staged'"):
        load_recipe(file, ["control.horizon=['suite']", "control.horizon.staged.max_turns=[5]"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("control.sampler=vad", r"^--set control\.sampler=vad: control\.sampler: unknown sampler 'vad'\n.*mean 'vade'"),
        ("control.sampler.exponent=1", "is a setting of the sampler 'vade', and 'contrast' is chosen"),
        ("control.sampler.exponnt=1", "The sampler 'contrast' has no settings of its own"),
        ("credit.epsilom=1", r"unknown key 'credit\.epsilom'\. Did you mean 'credit\.epsilon'"),
        ("loss.terms.ppo_clip.clip_hihg=1", r"ppo_clip\.clip_hihg'\. Did you mean 'loss\.terms\.ppo_clip\.clip_high'"),
        ("train.clip_low=0.1", r"unknown key 'train\.clip_low'\. Did you mean .*'loss\.terms\.ppo_clip\.clip_low'"),
        ("loss.clip_low=0.1", r"unknown key 'loss\.clip_low': it is now 'loss\.terms\.ppo_clip\.clip_low'"),
        ("loss.kl_coefficient=0.1", r"it is now 'loss\.terms\.kl\.weight'"),
        ("loss.terms=['kl', {name = 'kl'}]", "kl appears twice"),
        ("loss.terms=[]", r"loss\.terms: .*at least 1 item"),
        ("credit=gae", r"credit: the credit Gae needs values, but no loss term trains a critic\n.*add 'value'"),
        ("control.vade.exponent=1", "settings of a part are beside its name"),
        ("env.suite=locks", r"'env\.suite' is a setting of the env 'locks' or 'miniwob', and 'bandit' is chosen"),
        ("env.name=bandid", "env: unknown env 'bandid'\n.*Did you mean 'bandit'"),
        ("advantage.name=grpo", "unknown key 'advantage': it is now 'credit'"),
        ("straggler=april", r"straggler: .*needs admission\.schedule batch_synchronous"),
        (
            "filters.broken.max_error_share=0.1",
            r"^--set filters\.broken\.max_error_share=0\.1: filters: no part of the list is named 'broken'\n"
            r".*choose it first: filters = \['broken'\]",
        ),
        ("filters=[{max_error_share=0.1}]", r"filters: a part of the list has no name\n.*name = 'accuracy_band'"),
        ("loss.terms=no_such_module:Loss", "no loss_term at 'no_such_module:Loss'"),
        ("loss.terms=quartet.train.loss.base:LossInput", "is not a loss_term\n  -> make it a subclass of"),
        ("plugins=['no_such_module']", "plugins: 'no_such_module' cannot be imported"),
        ("plugins=['./mine']", r"plugins: './mine' is no module.*\n  -> write its dotted name"),
        ("plugins=['']", "plugins: '' is no module"),
    ],
)
def test_wrong_part_or_setting_is_refused_with_a_hint(file, override, message):
    with pytest.raises(ConfigError, match=message):
        load_recipe(file, [override])


def test_recipe_extends_another_and_replaces_parts_with_all_their_settings(file):
    base = file.with_name("base.toml")
    base.write_text(
        'name = "base"\n[model]\npath = "policy"\n[env]\nname = "bandit"\n[control]\nhorizon = "suite"\n'
        'sampler = {name = "vade", exponent = 1}\n[credit]\nepsilon = 0.1\n[loss]\naggregation = "branch_mean"\n'
    )
    file.write_text(
        'name = "x"\nextends = "base.toml"\n[control]\nsampler = "uniform"\n[credit]\nnegative_weight = 0.5\n'
    )
    recipe = load_recipe(file)
    assert (recipe.name, recipe.model.path) == ("x", str(file.parent / "policy"))
    assert (recipe.control.sampler.name, recipe.control.sampler.settings) == ("uniform", {})
    assert recipe.control.horizon == [Horizon(name="suite")]
    assert recipe.credit.settings == {"epsilon": 0.1, "negative_weight": 0.5}
    assert recipe.loss.aggregation == "branch_mean"
    assert "extends" not in recipe.model_dump()
    file.write_text('name = "x"\nextends = "miniwbo"\n')
    with pytest.raises(ConfigError, match="Did you mean 'miniwob'"):
        load_recipe(file)


def test_override_reaches_a_part_of_a_list_that_the_file_leaves_to_its_default(file):
    recipe = load_recipe(file, ["loss.terms.ppo_clip.clip_low=0.1"])
    assert [(term.name, term.weight, term.settings["clip_low"]) for term in recipe.loss.terms] == [
        ("ppo_clip", 1.0, 0.1)
    ]


@pytest.mark.parametrize(
    ("old", "terms"),
    [
        ({"name": "ppo_clip", "kl_coefficient": 0.0, "entropy_coefficient": 0.0}, [("ppo_clip", 1.0)]),
        ({"kl_coefficient": 0.1}, [("ppo_clip", 1.0), ("kl", 0.1)]),
        (
            {"name": "gspo", "entropy_coefficient": 0.01, "kl_coefficient": 0.1},
            [("gspo", 1.0), ("entropy", 0.01), ("kl", 0.1)],
        ),
    ],
)
def test_recipe_of_config_version_2_is_read_as_it_was_meant(file, old, terms):
    file.write_text(
        "\n".join(
            toml_lines(
                MINIMAL
                | {
                    "config_version": 2,
                    "advantage": {"name": "grpo", "negative_weight": 0.5},
                    "loss": old | {"clip_low": 0.05, "aggregation": "branch_mean"},
                }
            )
        )
    )
    recipe = load_recipe(file)
    assert recipe.config_version == CONFIG_VERSION
    assert (recipe.credit.name, recipe.credit.settings["negative_weight"]) == ("grpo", 0.5)
    assert [(term.name, term.weight) for term in recipe.loss.terms] == terms
    assert (recipe.loss.terms[0].settings["clip_low"], recipe.loss.aggregation) == (0.05, "branch_mean")


def test_recipe_of_config_version_1_is_read_as_it_was_meant(file):
    old = MINIMAL | {
        "config_version": 1,
        "control": {
            "sampler": "vade",
            "allocator": "dynamic",
            "horizon": ["suite", "longest_success"],
            "vade": {"exponent": 1.0},
            "dynamic_rollouts": {"min_rollouts": 3},
            "longest_success": {"factor": 2.0},
            "staged": {"max_turns": [7]},
        },
        "filter": {"names": ["broken", "mixed_outcome"], "broken": {"max_error_share": 0.25}, "overlong": {}},
        "stragglers": {"rule": "continue", "april": {"over_provision": 3.0}},
        "replay": {"name": "none", "rule": "stored", "mode": "insert", "entries_per_task": 4},
    }
    file.write_text("\n".join(toml_lines(old)))
    recipe = load_recipe(file)
    assert recipe.config_version == parse_recipe(MINIMAL, "test").config_version
    assert recipe.control.sampler.settings["exponent"] == 1.0
    assert recipe.control.allocator.settings["min_rollouts"] == 3
    assert [part.name for part in recipe.control.horizon] == ["suite", "longest_success"]
    assert recipe.control.horizon[1].settings["factor"] == 2.0
    assert recipe.filters == [
        Filter.model_validate({"name": "broken", "max_error_share": 0.25}),
        Filter(name="mixed_outcome"),
    ]
    assert (recipe.straggler.name, recipe.replay.name, recipe.replay.entries_per_task) == ("none", "none", 4)
    assert upgraded(tomllib.loads(to_toml(recipe))) == tomllib.loads(to_toml(recipe))


@pytest.mark.parametrize(
    ("env", "own"),
    [
        ({"name": "bandit", "suite": "", "sessions": 3}, {}),
        ({"name": "locks", "suite": "locks-2"}, {"suite": "locks-2"}),
        ({"name": "locks", "suite": ""}, {"suite": "locks"}),
    ],
)
def test_environment_of_config_version_2_is_read_as_it_was_meant(file, env, own):
    resolved = tomllib.loads(to_toml(load_recipe(file)))
    file.write_text("\n".join(toml_lines(resolved | {"config_version": 2, "env": env})))
    recipe = load_recipe(file)
    refuse_changes(read_resolved(file), recipe)  # the run can be resumed
    read = recipe.env
    assert (read.name, read.settings, read.sessions) == (env["name"], own, env.get("sessions", 8))


@pytest.mark.parametrize(
    ("engine", "own"),
    [
        (
            {"kind": "vllm", "vllm": {"url": "http://h:1"}, "openai": {"url": ""}, "kv_cache_megabytes": 1},
            {"url": "http://h:1"},
        ),
        ({"kind": "openai", "openai": {"url": "http://h:1", "model": "m"}}, {"url": "http://h:1", "model": "m"}),
        ({"kind": "torch", "vllm": {"python": ""}, "kv_cache_megabytes": 7}, {"kv_cache_megabytes": 7}),
    ],
)
def test_engine_of_config_version_2_is_read_as_it_was_meant(file, engine, own):
    file.write_text("\n".join(toml_lines(MINIMAL | {"config_version": 2, "engine": engine | {"max_slots": 3}})))
    read = load_recipe(file).engine
    assert (read.name, read.max_slots) == (engine["kind"], 3)
    assert own.items() <= read.settings.items()


def test_sinks_of_config_version_2_are_read_as_they_were_meant(file):
    observe = {"sinks": ["tensorboard", "prometheus"], "prometheus_port": 0}
    file.write_text("\n".join(toml_lines(MINIMAL | {"config_version": 2, "observe": observe})))
    assert [(sink.name, sink.settings) for sink in load_recipe(file).observe.sinks] == [
        ("tensorboard", {}),
        ("prometheus", {"port": 0}),
    ]


RENAMED = [
    ("engine", "old_cache", "kv_cache_on_weight_update", "keep"),
    ("evaluation", "control", "supervised_control", True),
    ("runtime", "ledger_patience_seconds", "ledger_timeout_seconds", 7.0),
    ("train", "spare_replayed_turns", "exempt_replayed_turns", True),
]


@pytest.mark.parametrize(("section", "old", "new", "value"), RENAMED)
def test_setting_renamed_in_config_version_4_is_read_and_an_old_name_is_refused_with_the_new(
    file, section, old, new, value
):
    data = MINIMAL | {section: MINIMAL.get(section, {}) | {old: value}}
    file.write_text("\n".join(toml_lines(data | {"config_version": 3})))
    assert getattr(getattr(load_recipe(file), section), new) == value
    with pytest.raises(ConfigError, match=f"unknown key '{section}.{old}': it is now '{section}.{new}'"):
        parse_recipe(data, "test")


def test_copying_that_was_built_in_is_a_generator_of_exercises_since_config_version_4(file):
    old = MINIMAL | {"config_version": 3, "sft": {"copy_steps": 7, "copy_learning_rate": 0.5}}
    file.write_text("\n".join(toml_lines(old)))
    sft = load_recipe(file).sft
    assert (sft.exercise_steps, sft.exercise_learning_rate) == (7, 0.5)
    assert sft.exercises == "recipes.miniwob.copying:CopyingExercises"


@pytest.mark.parametrize(
    "sections",
    [
        {"filters": ["overlong", "overlong"]},
        {"observe": {"sinks": ["prometheus", {"name": "prometheus", "port": 1}]}},
        {"loss": {"terms": ["kl", "kl"]}},
        {"control": {"horizon": ["fixed", "fixed"]}},
    ],
)
def test_a_list_names_each_part_once(sections):
    """The second would be silently without effect in an override, in a sink's process, and when a run is resumed."""
    with pytest.raises(ConfigError, match="appears twice"):
        parse_recipe(MINIMAL | sections, "test")


@pytest.mark.parametrize("twin", ["gspo", "quartet.train.loss.ppo_clip:PpoClip"])
def test_loss_terms_that_record_the_same_metric_are_refused(twin):
    """Their clip fractions would be added up, to more than 1."""
    with pytest.raises(ConfigError, match="another loss term both record train/clip_fraction"):
        parse_recipe(MINIMAL | {"loss": {"terms": ["ppo_clip", twin]}}, "test")


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_the_weight_of_a_loss_term_is_finite(weight):
    with pytest.raises(ConfigError, match="finite"):
        parse_recipe(MINIMAL | {"loss": {"terms": [{"name": "ppo_clip", "weight": weight}]}}, "test")


POOL = {"name": "success_pool"}
ANCHORED = POOL | {"demonstrations": "/d.jsonl", "demonstration_rule": "anchor"}


@pytest.mark.parametrize(
    ("terms", "replay", "refused"),
    [
        (["ppo_clip", "nll"], {}, "no member is replayed as one"),
        (["ppo_clip", "nll"], POOL, "no member is replayed as one"),
        (["ppo_clip", "nll"], {"name": "recent"}, "no member is replayed as one"),
        (["ppo_clip"], POOL | {"rule": "anchor"}, "no term of loss.terms imitates anchors"),
        (["ppo_clip"], POOL | {"demonstration_rule": "anchor"}, "no term of loss.terms imitates anchors"),
        (["ppo_clip"], ANCHORED, "no term of loss.terms imitates anchors"),
        (["ppo_clip", {"name": "nll", "uses": []}], POOL, "at least 1 item"),
    ],
)
def test_anchors_and_the_term_that_imitates_them_come_together(terms, replay, refused):
    with pytest.raises(ConfigError, match=refused):
        parse_recipe(MINIMAL | {"loss": {"terms": terms}, "replay": replay}, "test")


@pytest.mark.parametrize(
    ("terms", "replay"),
    [
        (["ppo_clip", "nll"], POOL | {"rule": "anchor"}),
        (["ppo_clip", "nll"], ANCHORED),
        (["ppo_clip", "nll"], POOL | {"demonstration_rule": "anchor"}),
        (["ppo_clip", {"name": "nll", "uses": ["replay"]}], POOL),
    ],
)
def test_anchors_with_a_term_that_imitates_them_are_taken(terms, replay):
    assert parse_recipe(MINIMAL | {"loss": {"terms": terms}, "replay": replay}, "test")


def test_a_run_from_before_a_part_gained_a_setting_is_resumed_with_its_default(file, tmp_path):
    file.write_text("\n".join(toml_lines(MINIMAL)))
    recipe = load_recipe(file)
    run_dir = tmp_path / "run"
    prepare(recipe, run_dir, resume=False)
    stored = (run_dir / "config.toml").read_text()
    former, removed = re.subn(r", importance_(floor|level) = [^,}]+", "", stored)
    assert removed == 2
    (run_dir / "config.toml").write_text(former)
    check_run_dir(recipe, run_dir, resume=True)
    with pytest.raises(ConfigError, match="cannot change"):
        check_run_dir(load_recipe(file, ["loss.terms.ppo_clip.importance_floor=0.5"]), run_dir, resume=True)


def test_a_path_of_a_part_is_beside_the_recipe_and_that_of_an_override_in_the_current_folder(tmp_path, monkeypatch):
    for folder in ("recipe", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.jsonl").write_text('{"question": "1", "answer": "1"}\n' * 20)
    recipe = tmp_path / "recipe" / "recipe.toml"
    env = '[env]\nname = "dataset"\ndata = "own.jsonl"\nprompt = "{{ question }}"\nreward = "number"\n'
    recipe.write_text(f'name = "x"\n[model]\npath = "m"\n{env}[rollout]\nmax_turns = 1\n')
    monkeypatch.chdir(tmp_path / "here")
    assert load_recipe(recipe).env.settings["data"] == str(tmp_path / "recipe" / "own.jsonl")
    assert load_recipe(recipe, ["env.data=own.jsonl"]).env.settings["data"] == str(tmp_path / "here" / "own.jsonl")
    extending = tmp_path / "here" / "recipe.toml"
    extending.write_text(f'extends = "{recipe}"\n')
    assert load_recipe(extending).env.settings["data"] == str(tmp_path / "recipe" / "own.jsonl")
    extending.write_text(f'extends = "{recipe}"\n[env]\ndata = "own.jsonl"\n')
    assert load_recipe(extending).env.settings["data"] == str(tmp_path / "here" / "own.jsonl")


def test_a_part_names_a_policy_that_ships(file):
    credit = 'filters = []\ncredit = { name = "distillation", teacher = "miniwob-start" }\n'
    file.write_text(credit + file.read_text())
    assert load_recipe(file).credit.settings["teacher"] == str(shipped_policies()["miniwob-start"])


def test_recipes_that_extend_each_other_are_named(tmp_path):
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text('extends = "other.toml"')
    other.write_text('extends = "one.toml"')
    with pytest.raises(ConfigError, match=f"{one} extends {other} extends {one}"):
        load_recipe(one)


def test_overrides_are_applied_to_a_copy():
    assert parse_recipe(MINIMAL, "test", ["env.sessions=7"]).env.sessions == 7
    assert parse_recipe(MINIMAL, "test").env.sessions != 7
