"""Publication of a train step's policy: write its folder, with a canary. Engines load the policy once it is
committed."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quartet.config import Recipe
from quartet.files.whole_folder import whole_folder
from quartet.on_progress import no_progress
from quartet.policy.adapter import ADAPTER_FOLDER
from quartet.policy.canary import fixed_sequence, write_canary
from quartet.policy.kind.base import PictureProcessor
from quartet.policy.lora import has_adapter, merged_copy, policy_weights, write_adapter
from quartet.policy.publisher.base import Publisher
from quartet.policy.save import write_policy
from quartet.policy.weights import cast_copy, with_weights
from quartet.train.packing.branches import Branch

CANARY_TOKENS = 256
"""Length of the canary's fixed sequence, and maximum total length of its sequences from the batch, in tokens."""


def publish_policy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    branches: Sequence[Branch],
    *,
    dtype: torch.dtype = torch.float32,
    engine_dtype: torch.dtype = torch.float32,
    merge: bool = False,
    publisher: Publisher | None = None,
    pictures: PictureProcessor | None = None,
    durable: bool = False,
    on_progress: Callable[[], None] = no_progress,
) -> None:
    """Write weights, tokenizer, image processor and canary to `folder`, replacing the folder of a crashed attempt.

    The weights are rounded to `dtype`; the canary is computed in float32 with the rounded weights, and, if the engines
    compute in another `engine_dtype`, once more in a copy that has it. With `merge`, an adapter is added to the
    weights, and also written to a subfolder. `publisher` adds its files. With `durable`, the folder survives power loss
    once this returns. `on_progress` is called after each file and chunk.
    """
    trained, model = model, _rounded(merged_copy(model) if merge else model, dtype)
    fixed = fixed_sequence(model.config.get_text_config().vocab_size, CANARY_TOKENS)
    with whole_folder(folder, point="policy", durable=durable, on_progress=on_progress) as fresh:
        if merge:
            write_adapter(trained, fresh / ADAPTER_FOLDER)
        sequences = [fixed, *first_tokens(branches, CANARY_TOKENS)]
        reduced = _as_in_engines(model, engine_dtype)
        on_progress()
        write_canary(fresh, model, sequences, pictures, reduced)
        on_progress()
        torch.nn.Module.to(model, dtype)
        write_policy(model, tokenizer, fresh, on_progress, pictures=pictures)
        if publisher is not None and not has_adapter(model):  # an adapter is small, and read with its base
            publisher.write(fresh, policy_weights(model), name=folder.name)
            on_progress()


def published_dtype(recipe: Recipe) -> torch.dtype:
    """Return the data type of the weights in published policies."""
    return getattr(torch, recipe.train.publish_dtype)


def _rounded(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Return the model if its weights have this type, else a copy of it whose weights are rounded to the type."""
    if dtype == model.dtype:
        return model
    return with_weights(model, {name: parameter.detach().to(dtype) for name, parameter in model.named_parameters()})


def _as_in_engines(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel | None:
    """Return a copy of the model as an engine in this dtype has it, an adapter added to its base before rounding; None
    for float32."""
    if dtype == torch.float32:
        return None
    return cast_copy(merged_copy(model) if has_adapter(model) else model, dtype)


def policy_folder(root: Path, version: int, batch_id: int) -> Path:
    """Return the folder for a batch's policy.

    Its name contains the batch, so that a trainer that was suspended cannot overwrite the policy of a later commit.
    """
    return root / f"v{version:06d}_batch_{batch_id:06d}"


def prune_attempts(folder: Path) -> None:
    """Delete the folders of crashed attempts at the version whose committed policy is in `folder`.

    Call this only after the commit.
    """
    version = folder.name.partition("_")[0]
    for attempt in folder.parent.glob(f"{version}_*"):
        if attempt != folder:
            shutil.rmtree(attempt)


def first_tokens(branches: Sequence[Branch], max_tokens: int) -> list[list[int]]:
    """Return the beginnings of the first branches, at most `max_tokens` tokens in total."""
    sequences: list[list[int]] = []
    for branch in branches:
        if max_tokens < 2:
            break
        sequences.append(branch.ids_L[:max_tokens].tolist())
        max_tokens -= len(sequences[-1])
    return sequences
