"""What gives token ids and texts their meaning, as three hashes. Trajectories are only replayed where all three agree.

Tokenizer and chat template are hashed by what they are. How a page becomes text is a matter of code in two languages;
a hash of its source would change with every comment and refuse good data, so numbers stand beside that code
(`observation_format` of an environment, `TURN_FORMAT`), and a test fails when the text changes without them.
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
"""Its name in the ledger."""
_NO_PART_OF_IT = ("padding", "truncation")
"""What a tokenizer remembers of its last caller."""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """Hashes of 16 hexadecimal digits."""

    tokenizer_hash: str
    """From text to token ids."""
    chat_template_hash: str
    """What stands around a turn's text."""
    observation_hash: str
    """From a page to a turn's text: environment, form of its texts, form of a turn, agent loop."""

    def refuse_other(self, other: "Fingerprint | None", source: str) -> None:
        """Raise `ConfigError` that names what differs in `other`, found at `source`; this one is the run's."""
        if other is None:
            raise ConfigError(f"{source} does not say which tokenizer made its token ids", "export it as chat instead")
        for name, (word, advice) in _PARTS.items():
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ConfigError(f"{source} has another {word}: {its}, this run's is {mine}", advice)


_PARTS = {
    "tokenizer_hash": ("tokenizer", "export that run as chat, whose text is tokenized anew"),
    "chat_template_hash": ("chat template", "export that run as chat, which is put into this run's template"),
    "observation_hash": (
        "observation format",
        "pages read differently there (another env.name, rollout.loop or Quartet): demonstrate again",
    ),
}


def run_fingerprint(ledger: Ledger) -> Fingerprint | None:
    """As it was recorded when the run began; None for a run that did not."""
    recorded = ledger.value(_VALUE)
    return None if recorded is None else convert(recorded, Fingerprint)


def settle_fingerprint(ledger: Ledger, recipe: Recipe, tokenizer: "PreTrainedTokenizerBase") -> Fingerprint:
    """Record the run's fingerprint when it begins; return it.

    Raises `ConfigError` at a resume when pages read differently by now: one run would be made out of two.
    """
    recorded = run_fingerprint(ledger)
    if recorded is None:
        recorded = fingerprint(tokenizer, recipe)
        ledger.set_value(_VALUE, to_builtins(recorded))
    if recorded.observation_hash != observation_hash(recipe):
        raise ConfigError(
            f"{ledger.run_dir} began with another observation format: this Quartet writes pages in another form",
            "go on with the Quartet that began it, or start a new run from its newest policy",
        )
    return recorded


def fingerprint(tokenizer: "PreTrainedTokenizerBase", recipe: Recipe) -> Fingerprint:
    """Of a run with this tokenizer and recipe; takes a tenth of a second for a large vocabulary."""
    return Fingerprint(
        tokenizer_hash=_hash(_definition(tokenizer)),
        chat_template_hash=_hash(tokenizer.chat_template),
        observation_hash=observation_hash(recipe),
    )


def observation_hash(recipe: Recipe) -> str:
    """How pages become text here."""
    observation_format = make_environment(recipe.env).observation_format
    return _hash([recipe.env.name, observation_format, TURN_FORMAT, recipe.rollout.loop.name])


def _definition(tokenizer: "PreTrainedTokenizerBase") -> Any:
    """All that a fast tokenizer does; of one written in Python its class and vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return [type(tokenizer).__name__, tokenizer.get_vocab()]
    return {key: value for key, value in json.loads(backend.to_str()).items() if key not in _NO_PART_OF_IT}


def _hash(definition: Any) -> str:
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
