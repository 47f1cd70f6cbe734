"""The texts of tokens come from the run's own policies, and from nowhere else."""

from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from benchmarks.bandit import bandit_recipe
from quartet.recipe.file import to_toml
from quartet.web.app import build_app
from quartet.web.tokens import Vocabulary
from tests.web.conftest import ask
from tests.web.recorded import record


def write_tokenizer(folder: Path, *words: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Tokenizer(WordLevel({word: n for n, word in enumerate(words)}, unk_token=words[0])).save(
        str(folder / "tokenizer.json")
    )


def test_texts_are_known_from_the_first_policy_on(tmp_path):
    assert Vocabulary(tmp_path).text([0, 1]) == "#0 #1"
    write_tokenizer(tmp_path / "policies" / "v000001_batch_000001", "click", "left")
    assert (Vocabulary(tmp_path).piece(1), Vocabulary(tmp_path).text([0, 1])) == ("left", "click left")
    write_tokenizer(tmp_path / "policies" / "v000001_batch_000001", "begun", "anew", "with another model")
    assert Vocabulary(tmp_path).piece(1) == "anew"


def test_texts_come_from_any_policy_of_the_run_and_survive_the_deletion_of_old_versions(tmp_path):
    folder = tmp_path / "policies" / "player"
    (folder / "v000000_batch_000000.writing").mkdir(parents=True)
    (folder / "v000000_batch_000000.writing" / "tokenizer.json").write_text("{")
    (folder / "v000001_batch_000001").mkdir()
    (folder / "v000001_batch_000001" / "tokenizer.json").symlink_to("deleted meanwhile")
    write_tokenizer(folder / "v000002_batch_000002", "click", "left")
    assert Vocabulary(tmp_path).piece(1) == "left"


async def test_the_model_that_a_copied_recipe_names_is_not_read(tmp_path):
    record(tmp_path / "run").close()
    (tmp_path / "run" / "config.toml").write_text(to_toml(bandit_recipe(tmp_path / "elsewhere")))
    write_tokenizer(tmp_path / "elsewhere", "of", "the", "viewer", "himself")
    async with ask(build_app([tmp_path / "run"])) as client:
        page = (await client.get("/runs/run/rollouts/2/turns/1")).text
    assert "#3" in page and "himself" not in page
