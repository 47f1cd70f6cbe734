"""The environment `dataset`: files of every kind, splits, prompts, and episodes with real reward processes."""

import json
from pathlib import Path
from typing import Any

import pytest

from quartet.env import make_environment, make_pool
from quartet.env.base import Env
from quartet.env.dataset.prompt import Prompts
from quartet.env.dataset.rows import read_rows
from quartet.env.environment.dataset import FIRST_HELD_OUT_SEED, Dataset
from quartet.errors import ConfigError
from quartet.recipe.file import load_recipe, parse_recipe, to_toml
from quartet.types import Message, Task

ROWS = [{"question": f"{n} + 1", "answer": str(n + 1), "level": "odd" if n % 2 else "even"} for n in range(60)]


def write(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recipe(data: Path, sections: dict[str, Any] | None = None, **env: Any):
    table = {"name": "dataset", "data": str(data), "prompt": "{{ question }}", "reward": "exact_match"} | env
    return parse_recipe({"name": "x", "model": {"path": "/m"}, "env": table} | (sections or {}), "test")


def dataset(data: Path, **env: Any) -> Dataset:
    environment = make_environment(recipe(data, **env).env)
    assert isinstance(environment, Dataset)
    return environment


def task(seed: int, family: str = "rows") -> Task:
    return Task(env="dataset", family=family, seed=seed)


def as_jsonl(folder: Path) -> Path:
    return write(folder / "all.jsonl", ROWS)


def as_parquet(folder: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), folder / "all.parquet", row_group_size=7)
    return folder / "all.parquet"


def as_shards(folder: Path) -> Path:
    for number, start in enumerate(range(0, 60, 20)):
        write(folder / "shards" / f"part-{number}.jsonl", ROWS[start : start + 20])
    return folder / "shards"


def as_saved_dataset(folder: Path) -> Path:
    import datasets

    datasets.Dataset.from_list(ROWS).save_to_disk(folder / "saved", num_shards=2)
    return folder / "saved"


def as_dictionary_of_one(folder: Path) -> Path:
    import datasets

    datasets.DatasetDict({"all": datasets.Dataset.from_list(ROWS)}).save_to_disk(folder / "one")
    return folder / "one"


def as_array(folder: Path) -> Path:
    (folder / "all.json").write_text(json.dumps(ROWS, indent=2))
    return folder / "all.json"


@pytest.mark.slow
@pytest.mark.parametrize("save", [as_jsonl, as_parquet, as_shards, as_saved_dataset, as_dictionary_of_one, as_array])
def test_every_kind_of_file_has_the_same_rows_and_the_same_split(save, tmp_path):
    rows, expected = read_rows(save(tmp_path), None, 0.2), read_rows(as_jsonl(tmp_path), None, 0.2)
    assert sorted(map(str, rows.training)) == sorted(map(str, expected.training))
    assert sorted(map(str, rows.held_out)) == sorted(map(str, expected.held_out))
    assert sorted(map(str, [*rows.training, *rows.held_out])) == sorted(map(str, ROWS))
    assert 5 <= len(rows.held_out) <= 20


def save_dict(folder: Path) -> Path:
    import datasets

    parts = {"train": ROWS[:50], "test": ROWS[50:]}
    datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in parts.items()}).save_to_disk(
        folder / "splits"
    )
    return folder / "splits"


def save_snapshot(folder: Path) -> Path:
    """Save a data set as a snapshot of the Hub: Parquet files in a folder, and metadata above it."""
    import pyarrow
    import pyarrow.parquet

    data = folder / "snapshot" / "data"
    (data.parent / ".cache").mkdir(parents=True)
    data.mkdir()
    for name, rows in {"train-00000-of-00001": ROWS[:50], "test-00000-of-00001": ROWS[50:]}.items():
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data / f"{name}.parquet")
    (data.parent / "dataset_infos.json").write_text('{"default": {"splits": {}}}')
    (data.parent / ".cache" / "train.json").write_text("{}")
    (data.parent / "README.md").write_text("# A data set")
    return data.parent


def save_files(folder: Path) -> Path:
    write(folder / "hub" / "train-00000-of-00002.jsonl", ROWS[:30])
    write(folder / "hub" / "train-00001-of-00002.jsonl", ROWS[30:50])
    write(folder / "hub" / "test-00000-of-00001.jsonl", ROWS[50:])
    return folder / "hub"


@pytest.mark.slow
@pytest.mark.parametrize("save", [save_dict, save_files, save_snapshot])
def test_a_given_split_is_used(save, tmp_path):
    assert read_rows(save(tmp_path), None, 0.5) == (ROWS[:50], ROWS[50:])


@pytest.mark.slow
def test_a_dictionary_of_splits_without_one_for_training_has_those_that_are_not_held_out(tmp_path):
    import datasets

    parts = {"all": ROWS[:40], "more": ROWS[40:50], "test": ROWS[50:]}
    saved = datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in parts.items()})
    saved.save_to_disk(tmp_path / "saved")
    assert read_rows(tmp_path / "saved", None, 0.5) == (ROWS[:50], ROWS[50:])


@pytest.mark.slow
def test_a_dictionary_of_held_out_splits_alone_and_a_hidden_split_are_refused(tmp_path):
    import datasets

    for name, message in (("test", r"all files of env\.data"), ("gsm8k_test", "gsm8k_test may be the split 'test'")):
        saved = datasets.DatasetDict({name: datasets.Dataset.from_list(ROWS)})
        saved.save_to_disk(tmp_path / name)
        with pytest.raises(ConfigError, match=message):
            read_rows(tmp_path / name, None, 0.2)


def test_several_data_sets_in_a_folder_are_refused_and_one_of_them_is_read(tmp_path):
    for name in ("main", "socratic"):
        (tmp_path / "hub" / name).mkdir(parents=True)
        write(tmp_path / "hub" / name / "train.jsonl", ROWS[:3])
        write(tmp_path / "hub" / name / "test.jsonl", ROWS[3:5])
    with pytest.raises(ConfigError, match=r"(?s)several data sets: main, socratic.*env\.data = .*main"):
        read_rows(tmp_path / "hub", None, 0.5)
    assert read_rows(tmp_path / "hub" / "main", None, 0.5) == (ROWS[:3], ROWS[3:5])


def test_a_json_file_is_an_array_or_lines(tmp_path):
    for text in (json.dumps(ROWS), f"\n {json.dumps(ROWS)}\n", "\n".join(map(json.dumps, ROWS))):
        (tmp_path / "rows.json").write_text(text)
        read_rows.cache_clear()
        assert read_rows(tmp_path / "rows.json", None, 0.2) == read_rows(as_jsonl(tmp_path), None, 0.2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{}, 3]", r"row 2 is not an object"),
        ("[{}, {]", r"rows\.json is not a JSON array"),
        ('{"data": [\n{}]}', r"(?s)line 1 is not JSON.*an array of objects"),
    ],
)
def test_a_json_file_of_another_form_is_refused(text, message, tmp_path):
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_rows(tmp_path / "rows.json", None, 0.2)


@pytest.mark.parametrize("name", ["dataset_infos.json", "dataset_dict.json", "state.json.md", ".train.jsonl"])
def test_a_folder_of_metadata_has_no_rows(name, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_text("{}")
    with pytest.raises(ConfigError, match="data has no data files"):
        read_rows(tmp_path / "data", None, 0.2)


@pytest.mark.parametrize("training", ["training.jsonl", "train_00.jsonl", "Train.jsonl", "part.jsonl"])
@pytest.mark.parametrize("test", ["test.jsonl", "val.jsonl", "dev-0.jsonl", "eval_set.jsonl"])
def test_files_of_held_out_splits_are_not_trained_on(training, test, tmp_path):
    write(tmp_path / "data" / training, ROWS[:3])
    write(tmp_path / "data" / test, ROWS[3:5])
    write(tmp_path / "data" / "validation.jsonl", ROWS[5:6])
    expected = ROWS[5:6] if test != "test.jsonl" else ROWS[3:5]
    assert read_rows(tmp_path / "data", None, 0.5) == (ROWS[:3], expected)


def test_a_split_whose_name_begins_with_another_word_is_refused_until_it_is_named(tmp_path):
    data = tmp_path / "data"
    train, test = write(data / "gsm8k_train.jsonl", ROWS[:3]), write(data / "gsm8k_test.jsonl", ROWS[3:5])
    (data / "run_eval.sh").touch()
    with pytest.raises(ConfigError, match=r"(?s)gsm8k_test\.jsonl may be the split 'test'.*env\.held_out"):
        read_rows(data, None, 0.5)
    assert read_rows(data, test, 0.5) == read_rows(train, test, 0.5) == (ROWS[:3], ROWS[3:5])
    write(data / "validation.jsonl", ROWS[5:6])
    with pytest.raises(ConfigError, match="gsm8k_test"):
        read_rows(data, None, 0.5)


@pytest.mark.parametrize("name", ["gsm8k_train_1.jsonl", "unit-test-generation.jsonl", "web_dev_questions.jsonl"])
def test_other_words_of_a_name_hide_no_split(name, tmp_path):
    write(tmp_path / "data" / name, ROWS)
    training, held_out = read_rows(tmp_path / "data", None, 0.5)
    assert len(training) + len(held_out) == len(ROWS)


def test_a_held_out_file_of_the_folder_is_not_trained_on_and_the_same_file_twice_is_refused(tmp_path):
    a, b = write(tmp_path / "data" / "a.jsonl", ROWS[:3]), write(tmp_path / "data" / "b.jsonl", ROWS[3:5])
    assert read_rows(a.parent, b, 0.5) == (ROWS[:3], ROWS[3:5])
    for data, held_out in ((a, a), (a, a.parent), (a.parent, a.parent)):
        with pytest.raises(ConfigError, match=r"all files of env\.data = .* are held out"):
            read_rows(data, held_out, 0.5)


def test_a_second_file_holds_rows_out(tmp_path):
    training, held_out = write(tmp_path / "a.jsonl", ROWS[:9]), write(tmp_path / "b.jsonl", ROWS[9:12])
    assert read_rows(training, held_out, 0.5) == (ROWS[:9], ROWS[9:12])


def test_equal_rows_are_on_the_same_side_in_any_order(tmp_path):
    doubled = read_rows(write(tmp_path / "doubled.jsonl", [*ROWS, *reversed(ROWS)]), None, 0.3)
    assert not {str(row) for row in doubled.training} & {str(row) for row in doubled.held_out}
    assert len(doubled.held_out) == 2 * len({str(row) for row in doubled.held_out})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": \n', "line 2 is not JSON"),
        ("[1, 2]\n", "row 1 is not an object"),
        ('{"a": 1}\n', "1 rows for training and 0 for evaluation|0 rows for training and 1 for evaluation"),
        ("", "0 rows for training"),
        ('{"a": 1}\n{"a": 1, "b": [100000000000000000000]}\n', "row 2 has an integer of .* 'b'(.|\n)*write it as text"),
    ],
)
def test_a_file_without_rows_is_an_error_with_its_line(text, message, tmp_path):
    (tmp_path / "data.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_rows(tmp_path / "data.jsonl", None, 0.1)


def test_a_missing_or_strange_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="there is no data set"):
        read_rows(tmp_path / "none", None, 0.1)
    (tmp_path / "data.csv").write_text("a,b\n")
    with pytest.raises(ConfigError, match="neither JSON nor Parquet"):
        read_rows(tmp_path / "data.csv", None, 0.1)


def test_tasks_are_rows_and_every_training_row_has_a_seed(tmp_path):
    data = dataset(as_jsonl(tmp_path), held_out_share=0.3)
    number = data.num_train_tasks("rows")
    training = [data.row(task(seed)) for seed in range(number)]
    held_out = [data.row(task(FIRST_HELD_OUT_SEED + seed)) for seed in range(60 - number)]
    assert sorted(map(str, [*training, *held_out])) == sorted(map(str, ROWS))
    assert data.row(task(FIRST_HELD_OUT_SEED + 500_000)) == held_out[-1], "policies are selected from the end"
    with pytest.raises(ConfigError, match=r"unknown family 'row'.*\n.*'rows'"):
        data.row(task(0, "row"))


def test_more_training_rows_than_seeds_are_refused_and_not_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("quartet.env.environment.dataset.FIRST_HELD_OUT_SEED", 40)
    with pytest.raises(ConfigError, match=r"'rows' has 5\d rows for training, but only 40 can be drawn"):
        dataset(as_jsonl(tmp_path)).families()
    assert dataset(as_jsonl(tmp_path), family_column="level", held_out_share=0.3).families() == ["even", "odd"]


def test_a_column_names_families(tmp_path):
    data = dataset(as_jsonl(tmp_path), family_column="level", held_out_share=0.3)
    assert data.families() == ["even", "odd"]
    assert {data.row(task(seed, "odd"))["level"] for seed in range(10)} == {"odd"}
    with pytest.raises(ConfigError, match=r"lacks env\.family_column = 'levl'"):
        dataset(as_jsonl(tmp_path), family_column="levl").families()


def test_a_template_that_cannot_be_filled_is_an_error_before_a_run_starts(tmp_path):
    with pytest.raises(ConfigError, match="'questoin' is undefined; the row has the columns answer, level, question"):
        dataset(as_jsonl(tmp_path), prompt="{{ questoin }}").families()


def test_prompts_are_templates_or_messages():
    asked = Prompts("Solve {{ question }}!", "Be brief.").messages({"question": "1 + 1"})
    assert asked == [Message("system", "Be brief."), Message("user", "Solve 1 + 1!")]
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    assert Prompts("{{ prompt }}", "").messages({"prompt": chat})[1] == Message("assistant", "Yes?")
    for content in ([{"type": "text", "text": "Hi"}], None):
        with pytest.raises(ConfigError, match="in the column 'prompt' is not a message"):
            Prompts("{{ prompt }}", "").messages({"prompt": [{"role": "user", "content": content}]})
    with pytest.raises(ConfigError, match="'questoin' is undefined; the row has the columns question"):
        Prompts("{{ questoin }}", "").messages({"question": "1 + 1"})
    with pytest.raises(ConfigError, match=r"env\.prompt is not a template"):
        Prompts("{{ question", "")


@pytest.mark.parametrize(
    ("env", "sections", "message"),
    [
        ({"reward": []}, {}, r"env\.reward is missing.*\n.*exact_match"),
        ({"reward": "exact_mach"}, {}, r"env\.reward\.exact_mach: unknown reward 'exact_mach'.*\n*.*'exact_match'"),
        ({"reward": {"name": "regex"}}, {}, r"env\.reward\.regex\.pattern: .*[Ff]ield required|pattern"),
        ({"reward": {"name": "regex", "pattern": "a", "patern": "b"}}, {}, "patern"),
        ({"reward": "no_such_module:score"}, {}, "no module 'no_such_module' with the reward function 'score'"),
        ({"reward": ["exact_match", "exact_match"]}, {}, "exact_match appears twice"),
        ({"reward": {"name": "exact_match", "timeout_seconds": 30}}, {}, r"raise env\.step_timeout_seconds"),
        ({"answer": "(a"}, {}, "is not a regular expression"),
        ({"tries": 3}, {"rollout": {"max_turns": 2, "loop": "append"}}, r"env\.tries = 3"),
        ({"tries": 3}, {}, "the loop latest does not show earlier answers"),
        (
            {"tries": 3},
            {"rollout": {"max_turns": 3, "loop": "screens", "history": "latest"}},
            "the history latest does not show earlier answers",
        ),
        ({}, {"evaluation": {"first_seed": 1000}}, r"evaluation\.first_seed is lower"),
    ],
)
def test_a_wrong_recipe_is_refused_with_a_hint(env, sections, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        recipe(as_jsonl(tmp_path), sections, **env)


def test_a_recipe_of_few_lines_is_complete_and_reads_back(tmp_path):
    write(tmp_path / "data.jsonl", ROWS)
    (tmp_path / "recipe.toml").write_text(
        'name = "x"\n[model]\npath = "m"\n[env]\nname = "dataset"\ndata = "data.jsonl"\nprompt = "{{ question }}"\n'
        'reward = ["exact_match", {name = "regex", pattern = "a", weight = 0.5}]\n'
    )
    loaded = load_recipe(tmp_path / "recipe.toml", ["env.reward.regex.weight=0.25"])
    assert loaded.env.settings["data"] == str(tmp_path / "data.jsonl")
    assert [one["weight"] for one in loaded.env.settings["reward"]] == [1.0, 0.25]
    assert loaded.env.settings["reward"][0]["column"] == "answer", "the settings of a reward are complete too"
    (tmp_path / "recipe.toml").write_text(to_toml(loaded))
    assert load_recipe(tmp_path / "recipe.toml") == loaded


@pytest.mark.slow
async def test_episodes_have_the_components_of_all_rewards(tmp_path):
    rewards = ["number", {"name": "regex", "pattern": r"so \d+", "weight": 0.5}]
    settings = {"reward": rewards, "answer": "number", "success_reward": 1.25, "tries": 2}
    env = recipe(as_jsonl(tmp_path), {"rollout": {"loop": "append"}}, **settings).env
    pool = make_pool(env)
    try:
        session = await pool.acquire()
        observation, right = await begin(session, 0)
        result = await session.step("I say 999")
        assert (result.terminated, result.reward, result.observation.text) == (False, 0.0, env.settings["feedback"])
        result = await session.step(f"so {right}")
        assert (result.rewards, result.reward) == ({"number": 1.0, "regex": 0.5}, 1.5)
        assert (result.terminated, result.info) == (True, {"success": True})
        assert [action.canonical for action in result.actions] == [right]
        await begin(session, 1)
        await session.step("1")
        assert (await session.step(f"{right} so 7")).info == {"success": False}, "the last try ends the episode"
        await pool.release(session, healthy=True)
    finally:
        await pool.close()
    assert observation.messages == [Message("user", f"{int(right) - 1} + 1")]


@pytest.mark.slow
async def test_a_sum_of_weighted_rewards_that_is_rounded_is_a_success(tmp_path):
    weights = {"exact_match": 0.7, "number": 0.2, "regex": 0.1}
    rewards = [{"name": name, "weight": weight} for name, weight in weights.items()]
    rewards[2]["pattern"] = ".*"
    pool = make_pool(recipe(as_jsonl(tmp_path), reward=rewards).env)
    try:
        session = await pool.acquire()
        _, right = await begin(session, 0)
        result = await session.step(right)
    finally:
        await pool.close()
    assert result.rewards == weights and sum(weights.values()) < 1.0
    assert result.info == {"success": True} and result.reward == 1.0


@pytest.mark.slow
async def test_rewards_of_the_same_name_or_module_have_components_of_their_own(tmp_path, monkeypatch):
    for module in ("mathematics", "style"):
        (tmp_path / f"{module}.py").write_text("def compute_score(solution_str):\n    return 1.0\n")
    parts = "from quartet.env.rewards.base import Reward\n" + "".join(
        f"class {name}(Reward):\n    def score(self, case):\n        return 1.0\n" for name in ("Short", "Polite")
    )
    (tmp_path / "manners.py").write_text(parts)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = ["mathematics:compute_score", "style:compute_score", "manners:Short", "manners:Polite"]
    pool = make_pool(recipe(as_jsonl(tmp_path), reward=names).env)
    try:
        session = await pool.acquire()
        await begin(session, 0)
        result = await session.step("1")
    finally:
        await pool.close()
    assert result.rewards == dict.fromkeys([*names[:2], "Short", "Polite"], 1.0)


async def begin(session: Env, seed: int):
    observation = await session.reset(task(seed))
    return observation, str(int(observation.messages[0].content.split()[0]) + 1)


@pytest.mark.parametrize(("share", "advice"), [(1e-6, "raise"), (0.999999, "lower")])
def test_the_advised_share_leaves_rows_on_both_sides(tmp_path: Path, share: float, advice: str) -> None:
    data = tmp_path / "few.jsonl"
    data.write_text("".join(f'{{"a": {number}}}\n' for number in range(20)))
    with pytest.raises(ConfigError, match=rf"{advice} env\.held_out_share to 0\.\d+") as refused:
        read_rows(data, None, share)
    better = float(refused.value.advice.split()[-1])
    assert read_rows(data, None, better)
