"""Messages that begin every conversation of a run: instructions, and examples of conversations."""

from pathlib import Path
from typing import TYPE_CHECKING

from quartet.config import Recipe
from quartet.config.rollouts import ActionFormat
from quartet.env import make_environment
from quartet.policy.chat import read_messages
from quartet.policy.chat_template import ChatTemplate
from quartet.registry import build
from quartet.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def opening(recipe: Recipe, tokenizer: "PreTrainedTokenizerBase") -> list[Message]:
    """Return the messages that begin every conversation of the policy with this tokenizer.

    The first is the system's, with the recipe's system prompt and the instructions of its format of actions. A recipe
    that sets neither prompt nor examples, and leaves the format to the environment, has those of the environment. If it
    has no instructions, a policy whose chat template has a role for the system reads the form of an action.
    Raise `ConfigError` for a wrong file of examples.
    """
    prompt, file = recipe.rollout.system_prompt, recipe.rollout.examples
    examples = read_messages(Path(file)) if file else []
    if prompt is None and not file and recipe.rollout.actions.name == ActionFormat().name:
        environment = make_environment(recipe.env)
        prompt, examples = environment.instructions, [*environment.examples]
        if not prompt and ChatTemplate(tokenizer).has_system_role():
            prompt = environment.chat_instructions
    texts = [text for text in (prompt, build(recipe.rollout.actions).instructions) if text]
    return [*([Message("system", "\n\n".join(texts))] if texts else []), *examples]
