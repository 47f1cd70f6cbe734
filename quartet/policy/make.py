"""Making of a new policy from texts: a tokenizer for their words, and a small model with random weights."""

from collections.abc import Iterable
from pathlib import Path

from quartet.policy.load import LoadedPolicy
from quartet.policy.model import make_model
from quartet.policy.save import save_policy
from quartet.policy.tokenizer import END, PAD, train_tokenizer


def make_policy(
    texts: Iterable[str],
    folder: str | Path,
    *,
    vocab_size: int = 2048,
    seed: int = 0,
    hidden_size: int = 128,
    num_layers: int = 4,
    num_heads: int = 4,
    num_kv_heads: int | None = None,
    intermediate_size: int | None = None,
) -> LoadedPolicy:
    """Write an untrained policy, with which `quartet sft` can start, to `folder`, and return the policy.

    The tokenizer gets its words from `texts` (prompts and responses); few texts give fewer than `vocab_size` entries.
    `make_model` explains the model's sizes. The same texts and seed give the same files.
    """
    tokenizer = train_tokenizer(texts, vocab_size)
    vocabulary = tokenizer.get_vocab()
    model = make_model(
        len(tokenizer),
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        intermediate_size=intermediate_size,
        eos_token_id=vocabulary[END],
        pad_token_id=vocabulary[PAD],
        seed=seed,
    )
    save_policy(model, tokenizer, folder)
    return LoadedPolicy(model, tokenizer)
