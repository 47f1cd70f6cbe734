"""The messages that begin a conversation: every environment tells a chat model the form of an action, and Quartet's own
policies read the same prompts as without it."""

from typing import Any

import pytest

from quartet.actions.grammar import GRAMMAR
from quartet.config import Recipe
from quartet.env import make_environment
from quartet.env.base import Environment
from quartet.env.opening import opening
from quartet.policy.chat_template import ChatTemplate
from quartet.policy.renderer import Renderer
from quartet.policy.tokenizer import train_tokenizer
from quartet.recipe.file import parse_recipe
from quartet.registry import find, names
from quartet.types import Message
from tests.rollout.scripted_engine import CHAT_TEMPLATE, make_tokenizer

ALL = names("env")
TOLD_BY_OBSERVATIONS = {"dataset", "reasoning_gym"}
"""Environments whose recipe writes the prompt."""
OWN_INSTRUCTIONS = {"browsergym", "tools"}
CHAT, OWN = make_tokenizer(), train_tokenizer(["click left [1]"], 600)
ONE_SYSTEM = (
    "{% for message in messages %}{% if message['role'] == 'system' and not loop.first %}"
    "{{ raise_exception('the system comes first') }}{% endif %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
NO_SYSTEM = ONE_SYSTEM.replace(" and not loop.first", "")


def recipe(name: str, **rollout: Any) -> Recipe:
    """Return the first recipe of an environment."""
    part: Any = find("env", name)
    first = {section: dict(values) for section, values in part.first_settings.items()}
    sections = first | {"env": first.get("env", {}) | {"name": name}, "rollout": first.get("rollout", {}) | rollout}
    return parse_recipe({"name": "t", "model": {"path": "."}} | sections, "test")


@pytest.mark.parametrize("name", ALL)
def test_every_environment_tells_a_chat_model_the_form_of_an_action(name):
    environment: Environment = make_environment(recipe(name).env)
    told = [message.content for message in opening(recipe(name), CHAT) if message.role == "system"]
    if name in TOLD_BY_OBSERVATIONS:
        assert told == []
    elif name in OWN_INSTRUCTIONS:
        assert told == [environment.instructions]
    else:
        assert environment.grammar and told == [f"Respond with {environment.grammar}."]
    shown = CHAT.decode(Renderer(CHAT, opening=opening(recipe(name), CHAT)).start("Go."))
    assert all(text in shown for text in told) and shown.endswith("<|user|>Go.<|end|><|assistant|>")


@pytest.mark.parametrize("name", sorted({*ALL} - OWN_INSTRUCTIONS))
def test_the_policies_that_quartet_makes_have_the_prompts_that_they_were_trained_with(name):
    assert opening(recipe(name), OWN) == []
    told = Renderer(OWN, opening=opening(recipe(name), OWN))
    assert told.start("Go.\nbutton left [1]") == Renderer(OWN).start("Go.\nbutton left [1]")


def test_a_recipe_turns_the_default_off_or_replaces_it():
    assert opening(recipe("locks", system_prompt=""), CHAT) == []
    assert opening(recipe("locks", system_prompt="Open it."), CHAT) == [Message("system", "Open it.")]
    (told,) = opening(recipe("miniwob", actions="quartet"), CHAT)
    assert GRAMMAR not in told.content, "the format has instructions of its own"


@pytest.mark.parametrize(
    ("template", "known"),
    [(CHAT_TEMPLATE, True), (ONE_SYSTEM, True), (NO_SYSTEM, False), (OWN.chat_template, False), (None, False)],
)
def test_a_chat_model_is_one_whose_template_has_a_role_for_the_system(template, known):
    tokenizer = make_tokenizer(template)
    assert ChatTemplate(tokenizer).has_system_role() is known
    assert bool(opening(recipe("locks"), tokenizer)) is known


def test_the_system_of_the_opening_and_that_of_the_environment_are_one_message():
    tokenizer = make_tokenizer(ONE_SYSTEM)
    renderer = Renderer(tokenizer, opening=opening(recipe("retail"), tokenizer))
    asked = [Message("system", "You are a clerk."), Message("user", "Hello?")]
    shown = tokenizer.decode(renderer.start_chat(asked).ids)
    assert shown.count("<|system|>") == 1 and shown.index("Respond with `call NAME") < shown.index("You are a clerk.")
    prompt = renderer.start_chat(asked)
    assert renderer.as_template(prompt, asked) == prompt
