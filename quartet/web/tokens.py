"""Token strip: each response token with its values (log-prob, advantage, ...), as text and as a colour class."""

import math
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from quartet.files.whole_folder import WRITING
from quartet.ledger.policy_folders import POLICIES
from quartet.telemetry.token_values import unpacked
from quartet.types import Call
from quartet.web.training import Training

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN = "–"


class Measure(Struct, frozen=True, kw_only=True):
    """One value by which a strip can be coloured. A value belongs to the first class whose bound it does not exceed."""

    name: str
    title: str
    bounds: tuple[float, ...]
    labels: tuple[str, ...]
    """Label of each class; there is one class more than bounds."""
    scale: str
    """Palette: `rising` emphasizes the last class, `two-sided` leaves the middle class plain."""
    note: str

    def class_of(self, value: float | None) -> str:
        """Return the number of the value's class as text; "" if the value is not known."""
        if value is None or math.isnan(value):
            return ""
        return str(sum(value > bound for bound in self.bounds))


MEASURES = (
    Measure(
        name="logprob",
        title="log-prob",
        bounds=(0.105, 0.693, 2.303, 4.605),
        labels=("above 90 %", "50 to 90 %", "10 to 50 %", "1 to 10 %", "below 1 %"),
        scale="rising",
        note="How likely the token was when it was sampled, in nats; the legend gives the probability.",
    ),
    Measure(
        name="entropy",
        title="entropy",
        bounds=(0.1, 0.5, 1.0, 2.0),
        labels=("below 0.1", "to 0.5", "to 1", "to 2", "above 2 nats"),
        scale="rising",
        note="Entropy of the policy at this token, in nats, from the engine or, if it reports none, from the trainer.",
    ),
    Measure(
        name="mask",
        title="mask",
        bounds=(0.5,),
        labels=("trained", "left out"),
        scale="rising",
        note="Tokens that are too old, or in turns that were not selected, do not count in the loss.",
    ),
    Measure(
        name="advantage",
        title="advantage",
        bounds=(-1.0, -0.05, 0.05, 1.0),
        labels=("below −1", "to −0.05", "about 0", "to 1", "above 1"),
        scale="two-sided",
        note="Advantage of the token, by which the loss multiplies its term.",
    ),
    Measure(
        name="importance",
        title="importance weight",
        bounds=(0.5, 0.9, 1.1, 2.0),
        labels=("below 0.5", "to 0.9", "about 1", "to 2", "above 2"),
        scale="two-sided",
        note="Probability of the token by the trainer, divided by its probability when it was sampled, before the cap.",
    ),
    Measure(
        name="version",
        title="policy version",
        bounds=(0, 1, 2, 3),
        labels=("newest here", "1 older", "2 older", "3 older", "more"),
        scale="rising",
        note="Version of the policy that sampled the token; a response can contain tokens of several versions.",
    ),
)


class Token(Struct, frozen=True, kw_only=True):
    """One response token, ready to be shown."""

    text: str
    token_id: int
    shown: dict[str, str]
    """Value as text, by the name of the measure."""
    classes: dict[str, str]
    """Class of colour, by the name of the measure; "" if the value is not known."""

    @property
    def visible(self) -> str:
        """Text of the token, with visible signs for line ends and for a token of spaces."""
        return self.text.replace("\n", "↵\n") if self.text.strip(" ") else "␣" * len(self.text)

    @property
    def hint(self) -> str:
        """Text, id and all values of the token in one line."""
        values = ", ".join(f"{measure.title} {self.shown[measure.name]}" for measure in MEASURES)
        return f"{self.text!r}, token {self.token_id}: {values}"


class Vocabulary:
    """Texts of token ids, by the tokenizer of the run's own policies; if the run has none, the ids as text.

    The recipe's `model.path` is not read: in a copied run it may name any folder on the viewer's machine.
    """

    def __init__(self, run_dir: Path) -> None:
        # All policies of a run share one tokenizer. The oldest file is the one that the cache knows; an active run
        # deletes old ones.
        self._tokenizer: Tokenizer | None = None
        for file in _tokenizer_files(run_dir / POLICIES):
            with suppress(FileNotFoundError):
                self._tokenizer = _tokenizer(file, file.stat().st_mtime_ns)
                break

    def piece(self, token_id: int) -> str:
        """Return the text of one token."""
        if self._tokenizer is None:
            return f"#{token_id}"
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def text(self, token_ids: list[int]) -> str:
        """Return the text of tokens, including special tokens."""
        if self._tokenizer is None:
            return " ".join(f"#{token_id}" for token_id in token_ids)
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)


def tokens_of(call: Call, call_index: int, training: Training, vocabulary: Vocabulary) -> list[Token]:
    """Return the response tokens of a call with their values."""
    kept = (training.values or {}).get(call_index)
    old_T = unpacked(kept.logprobs) if kept else None
    entropies = call.response.entropies or (unpacked(kept.entropies).tolist() if kept else [])
    mask = kept.trained if kept else None
    advantages = training.advantages.get(call_index)
    newest = max(call.response.versions, default=0)
    tokens = []
    for n, token_id in enumerate(call.response_ids):
        logprob = call.response.logprobs[n] if call.response.has_logprobs else None
        version = call.response.versions[n] if n < len(call.response.versions) else None
        old = float(old_T[n]) if old_T is not None else None
        trained = None if training.values is None else mask is not None and bool(mask[n])
        values = {
            "logprob": (logprob, None if logprob is None else -logprob),
            "entropy": (entropies[n] if entropies else None,) * 2,
            "advantage": (None if advantages is None else float(advantages[n]),) * 2,
            "importance": (_importance(old, logprob),) * 2,
        }
        shown = {name: _number(value) for name, (value, _) in values.items()}
        classes = {m.name: m.class_of(values[m.name][1]) for m in MEASURES if m.name in values}
        shown |= {"mask": UNKNOWN if trained is None else "trained" if trained else "left out"}
        shown |= {"version": UNKNOWN if version is None else f"v{version}"}
        classes |= {"mask": "" if trained is None else str(int(not trained))}
        classes |= {"version": "" if version is None else str(min(newest - version, 4))}
        tokens.append(Token(text=vocabulary.piece(token_id), token_id=token_id, shown=shown, classes=classes))
    return tokens


def _importance(old: float | None, sampled: float | None) -> float | None:
    if old is None or sampled is None or math.isnan(old):
        return None
    return math.exp(min(old - sampled, 20.0))


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    text = f"{value:.2f}".removeprefix("-")
    return f"−{text}" if value < 0 and float(text) else text


def _tokenizer_files(policies: Path) -> list[Path]:
    """Return the tokenizers of all versions of the run's policies, the oldest version first; not those of folders that
    are being written."""
    versions = [file for file in policies.glob("**/v*/tokenizer.json") if file.parent.suffix != WRITING]
    return sorted(versions, key=lambda file: file.parent.name)


@lru_cache(maxsize=8)
def _tokenizer(file: Path, changed_at_ns: int) -> "Tokenizer":
    """Return the tokenizer in a file. `changed_at_ns` is part of the cache's key, so a changed file is read again."""
    from tokenizers import Tokenizer

    return Tokenizer.from_str(file.read_text(encoding="utf-8"))
