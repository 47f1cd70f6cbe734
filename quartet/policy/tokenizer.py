"""Tokenizer of policies made by Quartet: words, references and verbs are single tokens, and any text can be encoded.

Text is first cut into pieces, and no token extends over two pieces. Each word, digit, space, newline and punctuation
mark is a piece. A word is therefore the same token after a space, a quote, a newline or an element's kind, and a label
can be copied from the goal to the response token by token. Some longer pieces shorten prompts: a reference with its
space (` [23]`), the start of a line (`\\nbutton `), the verb at the start of a response (`click `). Byte tokens encode
every text without loss.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
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
"""Words at the start of a turn's lines: kinds of elements, `did` for earlier actions, `error`."""
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
"""Pattern of the longer pieces; the first alternative that matches is used. If an element has no label, `(?!\\[)`
keeps the space out of this piece, so that it belongs to the reference after it, as in ` [12]`."""
_PIECES = rf"{_LONG_PIECES}|[^\W\d]+|\d|\s|."


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Make a tokenizer from prompts and responses: words that occur at least twice become tokens, frequent ones first.

    The vocabulary has at most `vocab_size` entries: 4 special tokens, 256 bytes, about 260 long pieces, and words.
    There are no merges: all other words are spelt in bytes, so a random string has the same tokens wherever it occurs.
    """
    cut = _pre_tokenizer()
    counts = Counter(piece for text in texts for piece, _span in cut.pre_tokenize_str(text))
    repeated = [piece for piece, count in counts.items() if count > 1]
    frequent = sorted(repeated, key=lambda piece: (-counts[piece], piece))
    fixed = dict.fromkeys([*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *_long_pieces()])
    if vocab_size < len(fixed):
        raise ConfigError(f"a vocabulary of {vocab_size} is too small", f"use at least {len(fixed)}")
    entries = list(dict.fromkeys([*fixed, *frequent]))[:vocab_size]
    model = models.BPE({entry: number for number, entry in enumerate(entries)}, merges=[], ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = cut
    tokenizer.decoder = decoders.ByteLevel()
    return _for_transformers(tokenizer)


def _long_pieces() -> list[str]:
    """Return the long pieces, written in the byte-level alphabet of `tokenizers`."""
    references = [f" [{number}]" for number in range(1, MAX_REFERENCE + 1)]
    openings = [*(f"\n{kind} " for kind in KINDS), *(f"{verb} " for verb in VERBS)]
    words = [*KINDS, *VERBS, *STATES, "done"]
    pieces = [*references, *openings, *(f" {state}" for state in STATES), ' "', ' = "', *dict.fromkeys(words)]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return [token for piece in pieces for token, _span in as_bytes.pre_tokenize_str(piece)]


def _pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    cut = pre_tokenizers.Split(Regex(_PIECES), behavior="isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


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
