"""Published policy of a train step: the folder with its canary. Engines use it after the ledger has committed it."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.files.whole_folder import nothing, whole_folder
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.load import write_policy
from quartet.train.packing import Branch

CANARY_TOKENS = 256
"""Length of the fixed sequence, and maximum total length of the sequences from the batch."""


def publish_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    branches: Sequence[Branch],
    *,
    pictures: PictureProcessor | None = None,
    durable: bool = False,
    on_progress: Callable[[], None] = nothing,
) -> None:
    """Write weights, tokenizer, image processor and canary to `folder`, replacing what a crashed attempt left there.

    `durable`: the folder survives power loss on return. `on_progress` is called after each file and chunk.
    """
    fixed = fixed_sequence(model.config.get_text_config().vocab_size, CANARY_TOKENS)
    with whole_folder(folder, point="policy", durable=durable, on_progress=on_progress) as fresh:
        write_policy(model, tokenizer, fresh, on_progress, pictures=pictures)
        write_canary(fresh, model, [fixed, *first_tokens(branches, CANARY_TOKENS)])
        on_progress()


def policy_folder(root: Path, version: int, batch_id: int) -> Path:
    """Return the folder of a batch's policy. It names the batch, so a suspended trainer cannot overwrite a later
    commit."""
    return root / f"v{version:06d}_batch_{batch_id:06d}"


def prune_attempts(folder: Path) -> None:
    """Delete crashed attempts at the version of a committed policy. Call this only after the commit."""
    version = folder.name.partition("_")[0]
    for attempt in folder.parent.glob(f"{version}_*"):
        if attempt != folder:
            shutil.rmtree(attempt)


def first_tokens(branches: Sequence[Branch], max_tokens: int) -> list[list[int]]:
    """Return the beginnings of the first branches, `max_tokens` tokens in total."""
    sequences: list[list[int]] = []
    for branch in branches:
        if max_tokens < 2:
            break
        sequences.append(branch.ids_L[:max_tokens].tolist())
        max_tokens -= len(sequences[-1])
    return sequences
