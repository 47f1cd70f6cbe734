"""A train step's result on disk: the policy folder with its canary. Engines see it once the ledger has committed it."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.files.whole_folder import nothing, whole_folder
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.load import write_policy
from quartet.train.packing import Branch

CANARY_TOKENS = 256
"""Tokens of the fixed sequence, and at most as many of the batch."""


def publish_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    branches: Sequence[Branch],
    *,
    durable: bool = False,
    on_progress: Callable[[], None] = nothing,
) -> None:
    """Write weights, tokenizer and canary to `folder`; what a crashed attempt left there is replaced.

    `durable`: the folder survives power loss when this returns. `on_progress` is called after each file and chunk.
    """
    fixed = fixed_sequence(model.config.vocab_size, CANARY_TOKENS)
    with whole_folder(folder, point="policy", durable=durable, on_progress=on_progress) as fresh:
        write_policy(model, tokenizer, fresh, on_progress)
        write_canary(fresh, model, [fixed, *first_tokens(branches, CANARY_TOKENS)])
        on_progress()


def policy_folder(root: Path, version: int, batch_id: int) -> Path:
    """Each batch has its own: a trainer that was stopped and wakes up late cannot write over what another committed."""
    return root / f"v{version:06d}_batch_{batch_id:06d}"


def prune_attempts(folder: Path) -> None:
    """Delete what crashed attempts at its version left beside a committed policy. Call it after the commit only."""
    version = folder.name.partition("_")[0]
    for attempt in folder.parent.glob(f"{version}_*"):
        if attempt != folder:
            shutil.rmtree(attempt)


def first_tokens(branches: Sequence[Branch], max_tokens: int) -> list[list[int]]:
    """Beginnings of the first branches, `max_tokens` tokens together."""
    sequences: list[list[int]] = []
    for branch in branches:
        if max_tokens < 2:
            break
        sequences.append(branch.ids_L[:max_tokens].tolist())
        max_tokens -= len(sequences[-1])
    return sequences
