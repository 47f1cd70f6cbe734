"""A train step's result on disk: the policy folder with its canary. Engines see it once the ledger has committed it."""

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import save_policy
from quartet.train.packing import Branch

CANARY_TOKENS = 256
"""Tokens of the fixed sequence, and at most as many of the batch."""


def publish_policy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, branches: Sequence[Branch]
) -> None:
    """Write weights, tokenizer and canary to `folder`; what a crashed attempt left there is replaced."""
    save_policy(model, tokenizer, folder)
    fixed = fixed_sequence(model.config.vocab_size, CANARY_TOKENS)
    write_canary(folder, model, [fixed, *first_tokens(branches, CANARY_TOKENS)])


def first_tokens(branches: Sequence[Branch], max_tokens: int) -> list[list[int]]:
    """Beginnings of the first branches, `max_tokens` tokens together."""
    sequences: list[list[int]] = []
    for branch in branches:
        if max_tokens < 2:
            break
        sequences.append(branch.ids_L[:max_tokens].tolist())
        max_tokens -= len(sequences[-1])
    return sequences
