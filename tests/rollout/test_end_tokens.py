"""Tokens that end a response beside that of the chat template: those of the model's generation_config.json."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from quartet.config.recipe import Recipe
from quartet.errors import UnusablePolicyError
from quartet.ledger import Ledger
from quartet.recipe.file import parse_recipe
from quartet.rollout.worker import make_renderer
from tests.rollout.scripted_engine import make_tokenizer

TOKENIZER = make_tokenizer()
PAD, USER, END = (TOKENIZER.convert_tokens_to_ids(token) for token in ("<|pad|>", "<|user|>", "<|end|>"))
WORD = TOKENIZER("click", add_special_tokens=False)["input_ids"][0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    TOKENIZER.save_pretrained(str(tmp_path / "model"))
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return tmp_path / "model"


def recipe_of(folder: Path) -> Recipe:
    return parse_recipe({"name": "x", "model": {"path": str(folder)}, "env": {"name": "bandit"}}, "test")


def stop_tokens(folder: Path) -> list[int]:
    """Return the stop tokens that the requests of a run with the policy in `folder` have."""
    with closing(Ledger.create(folder.parent / "run")) as ledger:
        ledger.policies.register_initial(str(folder))
        return make_renderer(recipe_of(folder), ledger).stop_token_ids


@pytest.mark.parametrize(
    ("ends", "expected"),
    [([PAD, END, USER], [END, PAD, USER]), (PAD, [END, PAD]), (END, [END]), (None, [END]), ([WORD, 10**6], [END])],
)
def test_a_response_also_ends_with_the_special_tokens_that_the_model_names(folder: Path, ends, expected):
    """An id of ordinary text, such as the default 2 of a Llama configuration, does not end a response."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends, "do_sample": True}))
    assert stop_tokens(folder) == expected


def test_without_a_generation_config_the_template_alone_ends_a_response(folder: Path):
    assert stop_tokens(folder) == [END]


def test_a_damaged_generation_config_is_named(folder: Path):
    (folder / "generation_config.json").write_text('{"eos_token_id": "all"}')
    with pytest.raises(UnusablePolicyError, match=r"generation_config\.json"):
        stop_tokens(folder)
