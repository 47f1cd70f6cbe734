"""Fingerprint of the meaning of token ids and texts, as three hashes. Trajectories are replayed only if all three
agree.

Tokenizer and chat template are hashed by their definition. A page becomes text by code in two languages; a hash of its
source would change with every comment and reject valid data. So that code has version numbers (`observation_format` of
an environment, `TURN_FORMAT`), and a test fails if the text changes without them.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins

from quartet.config import Recipe
from quartet.env import make_environment
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.policy.prompt import TURN_FORMAT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_VALUE = "fingerprint"
"""Key of the fingerprint in the ledger."""
_NO_PART_OF_IT = ("padding", "truncation")
"""State that a tokenizer keeps of its last caller."""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """Hashes of 16 hexadecimal digits."""

    tokenizer_hash: str
    """Hash of the mapping from text to token ids."""
    chat_template_hash: str
    """Hash of the template around a turn's text."""
    observation_hash: str
    """Hash of the mapping from a page to a turn's text: environment, observation format, turn format, agent loop."""

    def refuse_other(self, other: "Fingerprint | None", source: str) -> None:
        """Raise `ConfigError` naming the difference in `other`, found at `source`; this one is the run's."""
        if other is None:
            raise ConfigError(f"{source} does not name the tokenizer of its token ids", "export it as chat instead")
        for name, (word, advice) in _PARTS.items():
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ConfigError(f"{source} has another {word}: {its}, this run's is {mine}", advice)


_PARTS = {
    "tokenizer_hash": ("tokenizer", "export that run as chat: its text is then tokenized again"),
    "chat_template_hash": ("chat template", "export that run as chat, for which this run's template is used"),
    "observation_hash": (
        "observation format",
        "its pages have another text form (another env.name, rollout.loop or Quartet): record new demonstrations",
    ),
}


def run_fingerprint(ledger: Ledger) -> Fingerprint | None:
    """Return the fingerprint recorded when the run began, or None."""
    recorded = ledger.value(_VALUE)
    return None if recorded is None else convert(recorded, Fingerprint)


def settle_fingerprint(ledger: Ledger, recipe: Recipe, tokenizer: "PreTrainedTokenizerBase") -> Fingerprint:
    """Record the run's fingerprint at its first start; return it.

    Raise `ConfigError` at a resume if the text form of pages has changed since: the run would mix two forms.
    """
    recorded = run_fingerprint(ledger)
    if recorded is None:
        recorded = fingerprint(tokenizer, recipe)
        ledger.set_value(_VALUE, to_builtins(recorded))
    if recorded.observation_hash != observation_hash(recipe):
        raise ConfigError(
            f"{ledger.run_dir} began with another observation format than that of this version of Quartet",
            "resume it with the version that began it, or start a new run from its newest policy",
        )
    return recorded


def fingerprint(tokenizer: "PreTrainedTokenizerBase", recipe: Recipe) -> Fingerprint:
    """Return the fingerprint of a tokenizer and recipe; this takes 0.1 s for a large vocabulary."""
    return Fingerprint(
        tokenizer_hash=_hash(_definition(tokenizer)),
        chat_template_hash=_hash(tokenizer.chat_template),
        observation_hash=observation_hash(recipe),
    )


def observation_hash(recipe: Recipe) -> str:
    """Return the hash of the mapping from pages to text."""
    observation_format = make_environment(recipe.env).observation_format
    return _hash([recipe.env.name, observation_format, TURN_FORMAT, recipe.rollout.loop.name])


def _definition(tokenizer: "PreTrainedTokenizerBase") -> Any:
    """Return the complete definition of a fast tokenizer; for one written in Python, its class and vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return [type(tokenizer).__name__, tokenizer.get_vocab()]
    return {key: value for key, value in json.loads(backend.to_str()).items() if key not in _NO_PART_OF_IT}


def _hash(definition: Any) -> str:
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
