"""Messages that begin every conversation: those of the recipe, else those of the environment, then the format's."""

import json
from pathlib import Path

import pytest

from quartet.config import Recipe
from quartet.env.base import Environment
from quartet.env.environment.bandit import Bandit
from quartet.env.opening import opening
from quartet.errors import ConfigError
from quartet.policy.examples import read_chats
from quartet.policy.renderer import Renderer
from quartet.recipe.file import parse_recipe
from quartet.types import Message
from tests.rollout.scripted_engine import make_tokenizer

EXAMPLE = [Message("user", "Pull an arm."), Message("assistant", "click left [1]")]


class Talking(Bandit):
    """A bandit that explains itself."""

    instructions = "Pull arms."
    examples = EXAMPLE


def recipe(env: str = f"{__name__}:Talking", **rollout: object) -> Recipe:
    data = {"name": "t", "model": {"path": "."}, "env": {"name": env}, "rollout": rollout}
    return parse_recipe(data, source="test")


def begun(given: Recipe) -> list[Message]:
    return opening(given, make_tokenizer())


def chat_file(tmp_path: Path, *roles: str) -> str:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": [{"role": role, "content": f"a {role}"} for role in roles]}) + "\n")
    return str(file)


def test_by_default_a_conversation_begins_with_what_the_environment_says_and_most_say_their_grammar():
    assert begun(recipe()) == [Message("system", "Pull arms."), *EXAMPLE]
    grammar = Message("system", "Respond with `click LABEL [1]` or `done`.")
    assert begun(recipe("bandit")) == [grammar] and Environment.instructions == ""


def test_the_recipe_replaces_prompt_and_examples_of_the_environment(tmp_path):
    assert begun(recipe(system_prompt="Be brief.")) == [Message("system", "Be brief.")]
    assert begun(recipe(system_prompt="")) == []
    chats = [Message("user", "a user"), Message("assistant", "a assistant")]
    file = chat_file(tmp_path, "user", "assistant")
    assert begun(recipe(examples=file)) == chats
    assert begun(recipe(examples=file, system_prompt="Be brief.")) == [Message("system", "Be brief."), *chats]


def test_the_instructions_of_another_format_follow_the_prompt_of_the_recipe(monkeypatch):
    monkeypatch.setattr(Talking, "typed_actions", True)
    (system,) = begun(recipe(actions="quartet"))
    assert system.content.startswith("You see a screen"), "the environment's own are about its own grammar"
    (system,) = begun(recipe(actions="quartet", system_prompt="Pull arms."))
    assert system.content.startswith("Pull arms.\n\nYou see a screen")


@pytest.mark.parametrize("roles", [("assistant",), ("user",), ("user", "robot", "assistant"), ()])
def test_a_file_that_is_no_chat_is_named(tmp_path, roles):
    with pytest.raises(ConfigError, match=r"chats\.jsonl:1: "):
        begun(recipe(examples=chat_file(tmp_path, *roles)))
    with pytest.raises(ConfigError, match="no file at"):
        begun(recipe(examples=str(tmp_path / "nothing.jsonl")))


def test_examples_precede_every_task_and_are_not_learned_in_fine_tuning(tmp_path):
    tokenizer = make_tokenizer()
    renderer = Renderer(tokenizer, opening=EXAMPLE)
    shown = "<|user|>Pull an arm.<|end|><|assistant|>click left [1]<|end|>"
    assert tokenizer.decode(renderer.start("Go.")) == f"{shown}<|user|>Go.<|end|><|assistant|>"
    (example,) = read_chats(chat_file(tmp_path, "user", "assistant"), tokenizer, EXAMPLE)
    learned = [token for token, flag in zip(example.token_ids, example.learned, strict=True) if flag]
    assert tokenizer.decode(learned) == "a assistant<|end|>"
    assert tokenizer.decode(example.token_ids).startswith(shown)
