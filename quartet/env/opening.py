"""Messages that begin every conversation of a run: instructions, and examples of conversations."""

from pathlib import Path

from quartet.config import Recipe
from quartet.config.rollouts import ActionFormat
from quartet.env import make_environment
from quartet.policy.chat import read_messages
from quartet.registry import build
from quartet.types import Message


def opening(recipe: Recipe) -> list[Message]:
    """Return the messages that begin every conversation.

    The first is the system's, with the recipe's system prompt and the instructions of its format of actions. A recipe
    that sets neither prompt nor examples, and leaves the format to the environment, has those of the environment.
    Raise `ConfigError` for a wrong file of examples.
    """
    prompt, file = recipe.rollout.system_prompt, recipe.rollout.examples
    examples = read_messages(Path(file)) if file else []
    if prompt is None and not file and recipe.rollout.actions.name == ActionFormat().name:
        environment = make_environment(recipe.env)
        prompt, examples = environment.instructions, [*environment.examples]
    texts = [text for text in (prompt, build(recipe.rollout.actions).instructions) if text]
    return [*([Message("system", "\n\n".join(texts))] if texts else []), *examples]
