"""The tokenizer of a policy that Quartet makes: words, references and verbs as single tokens, any text encodable.

Text is cut into pieces first, and no token crosses a piece: a word, a digit, a space, a newline or a punctuation mark
is its own piece wherever it stands, so a word is the same token after a space, a quote, a newline or an element's kind.
Copying a label from the goal to the response is then copying tokens. A few longer pieces keep prompts short: the
reference with its space (` [23]`), the start of a line (`\\nbutton `), the verb that opens a response (`click `).
Byte-level BPE below the pieces makes every text encodable and decodable without loss.
"""

import json
import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from quartet.errors import ConfigError

PAD, USER, ASSISTANT, END = SPECIAL_TOKENS = ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>")
KINDS = (
    "button",
    "canvas",
    "checkbox",
    "color",
    "did",
    "error",
    "file",
    "heading",
    "image",
    "input",
    "link",
    "menuitem",
    "option",
    "radio",
    "select",
    "slider",
    "tab",
    "text",
    "textarea",
)
"""Words that open a line of a turn: kinds of elements, and the lines of earlier actions and errors."""
VERBS = ("click", "drag", "key", "scroll", "select", "type")
STATES = ("checked", "disabled", "expanded", "focused", "selected")
MAX_REFERENCE = 199
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "<|assistant|>{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% elif message['role'] in ('user', 'system') %}"
    "<|user|>{{ message['content'] }}<|end|>"
    "{% else %}{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

_LONG_PIECES = "|".join(
    [
        r" \[\d{1,3}\]",
        rf"\n(?:{'|'.join(KINDS)}) (?!\[)",
        rf"(?:\A|(?<=\ndid ))(?:{'|'.join(VERBS)}) (?!\[)",
        rf"(?<=\]) (?:{'|'.join(STATES)})\b",
        r" = \"",
        r" \"",
    ]
)
"""First match wins. `(?!\\[)`: where a label is missing the reference keeps its space."""
_PIECES = rf"{_LONG_PIECES}|[^\W\d]+|\d|\s|."


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Learn a tokenizer from prompts and responses; frequent words become whole tokens.

    The vocabulary has at most `vocab_size` entries: 4 special tokens, 256 bytes, about 260 long pieces, and words.
    """
    long_pieces = _long_pieces()
    room_for_words = vocab_size - len(SPECIAL_TOKENS) - 256 - len(long_pieces)
    if room_for_words < 0:
        raise ConfigError(f"a vocabulary of {vocab_size} is too small", f"take at least {vocab_size - room_for_words}")
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = _pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(long_pieces),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator((re.sub(_LONG_PIECES, "\n", text) for text in texts), trainer)
    return _for_transformers(_with_long_pieces(learner, long_pieces))


def _long_pieces() -> list[str]:
    references = [f" [{number}]" for number in range(1, MAX_REFERENCE + 1)]
    openings = [*(f"\n{kind} " for kind in KINDS), *(f"{verb} " for verb in VERBS)]
    words = [*KINDS, *VERBS, *STATES, "done"]
    return [*references, *openings, *(f" {state}" for state in STATES), ' "', ' = "', *dict.fromkeys(words)]


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _with_long_pieces(learner: Tokenizer, long_pieces: list[str]) -> Tokenizer:
    """Add whole pieces to the vocabulary; `ignore_merges` makes a piece that is a token stay whole."""
    state = json.loads(learner.to_str())
    vocabulary: dict[str, int] = state["model"]["vocab"]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for piece in long_pieces:
        ((token, _span),) = as_bytes.pre_tokenize_str(piece)
        vocabulary.setdefault(token, len(vocabulary))
    state["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _for_transformers(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
