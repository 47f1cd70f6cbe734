"""Training examples of supervised fine-tuning: token ids, and a mask of the target tokens.

Target tokens are the tokens whose log-prob the loss maximises.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from quartet.errors import ConfigError
from quartet.policy.chat import FORM, Chat, ChatError, decode_chat, exchanges, naming_line
from quartet.policy.renderer import Renderer
from quartet.types import Message


class Example(NamedTuple):
    """One token sequence. `learned[i]` is True if token i is a target token, whose prediction is part of the loss."""

    token_ids: list[int]
    learned: list[bool]


class TokenBatch(NamedTuple):
    """Examples padded on the right. Padding is no target, and with causal attention no token attends to it."""

    ids_BT: torch.Tensor
    learned_BT: torch.Tensor


def read_chats(path: str | Path, tokenizer: PreTrainedTokenizerBase, opening: Sequence[Message] = ()) -> list[Example]:
    """Read chat-format JSONL. The assistant's messages, with the end token after each, are the target tokens,
    but for the answers that a chat names in `unlearned`.
    The messages of `opening` begin every chat, as in a rollout; they are no targets.

    The token ids equal those of a rollout, since `Renderer` makes both. Raise `ConfigError`, which names file and line,
    for a line that is not a chat (see `decode_chat` and `exchanges`) or that the chat template rejects, and for a file
    without chats.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"no demonstrations at {path}", "set sft.data to a chat-format JSONL file")
    renderer = Renderer(tokenizer, opening=opening)
    examples: list[Example] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            with naming_line(path, number):
                examples.append(chat_example(decode_chat(line, Chat), renderer))
    if not examples:
        raise ConfigError(f"{path} has no chat: it is empty", f"write one chat per line: {FORM}")
    return examples


def chat_example(chat: Chat, renderer: Renderer) -> Example:
    """Return one chat as a training example. Raise `ChatError` as `exchanges` does, and if no answer is learned."""
    prompt = response = learned = []
    for number, exchange in enumerate(exchanges(chat, renderer)):
        prompt, response = exchange.prompt_ids, exchange.response_ids
        target = number not in chat.unlearned
        learned = [*learned, *[False] * (len(prompt) - len(learned)), *[target] * len(response)]
    if not any(learned):
        raise ChatError(
            "no answer of the chat is learned: unlearned names them all", "remove a number from unlearned, or the line"
        )
    return Example([*prompt, *response], learned)


def batches(
    examples: list[Example], tokens_per_batch: int, pad_id: int, rng: np.random.Generator
) -> Iterator[TokenBatch]:
    """Yield the batches of `one_epoch` again and again, without end."""
    while True:
        yield from one_epoch(examples, tokens_per_batch, pad_id, rng)


def one_epoch(
    examples: list[Example], tokens_per_batch: int, pad_id: int, rng: np.random.Generator
) -> Iterator[TokenBatch]:
    """Yield every example once, in batches of at most `tokens_per_batch` tokens, padding included.

    Examples of similar length are put into one batch, so that there is little padding; the order of the batches is
    random. An example with more than `tokens_per_batch` tokens is a separate batch.
    """
    lengths = np.array([len(example.token_ids) for example in examples])
    cuts: list[list[int]] = [[]]
    for index in np.lexsort((rng.random(len(examples)), lengths)):
        if cuts[-1] and (len(cuts[-1]) + 1) * lengths[index] > tokens_per_batch:
            cuts.append([])
        cuts[-1].append(int(index))
    for cut in rng.permutation(len(cuts)):
        yield pad([examples[index] for index in cuts[cut]], pad_id)


def padding_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the token with which shorter examples are filled up."""
    return tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else 0


def pad(examples: list[Example], pad_id: int) -> TokenBatch:
    """Return the examples as one batch, padded on the right to the longest example."""
    shape = len(examples), max(len(example.token_ids) for example in examples)
    ids_BT, learned_BT = np.full(shape, pad_id, dtype=np.int64), np.zeros(shape, dtype=bool)
    for row, example in enumerate(examples):
        ids_BT[row, : len(example.token_ids)] = example.token_ids
        learned_BT[row, : len(example.learned)] = example.learned
    return TokenBatch(torch.from_numpy(ids_BT), torch.from_numpy(learned_BT))
