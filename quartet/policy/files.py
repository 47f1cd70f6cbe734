"""Checks of a policy's folder: verification of checksums, and one type of error for all failures of loading."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from quartet.errors import CheckpointError, ConfigError, OutOfMemoryError, QuartetError, UnusablePolicyError
from quartet.files.whole_folder import CHECKSUMS, check_folder
from quartet.on_progress import no_progress

LOG = logging.getLogger(__name__)
T = TypeVar("T")
WEIGHTS = "*.safetensors"
_RUST_PANIC = "pyo3_runtime"
"""Module of exceptions caused by a panic in tokenizers or safetensors; they do not inherit from `Exception`."""

_MEMORY_ADVICE = (
    "free memory of other processes, or lower engine.kv_cache_megabytes or engine.max_context_tokens, or set "
    "engine.dtype = 'bfloat16'"
)


def check_policy(folder: Path, *, except_for: str = "", on_progress: Callable[[], None] = no_progress) -> None:
    """Compare a policy's files with their checksums. A policy made by another program has no checksums and passes.

    Raise `CheckpointError` like `check_folder`.
    """
    if (folder / CHECKSUMS).exists():
        check_folder(folder, except_for=except_for, on_progress=on_progress)


def from_newest_whole(folders: Sequence[Path], load: Callable[[Path], T]) -> T:
    """Return the result of `load` for the first undamaged folder of `folders`, a run's policies from new to old.

    Use it to load something that all policies of a run share, such as the tokenizer. If all folders are damaged, raise
    `UnusablePolicyError` with the oldest policy's error.
    """
    *newer, oldest = folders
    for folder in newer:
        try:
            return load(folder)
        except (CheckpointError, ConfigError) as error:
            LOG.warning("trying an older policy: %s", error)
    try:
        return load(oldest)
    except CheckpointError as error:
        raise UnusablePolicyError(error.what, error.advice) from error


@contextmanager
def raising_checkpoint_errors(what: str) -> Iterator[None]:
    """Convert every error of a library about damaged files to a `CheckpointError` whose message begins with `what`.

    If config.json or a tokenizer file is damaged, `transformers` may raise an error of nearly any type. If memory is
    short, raise `OutOfMemoryError` instead: the files may be undamaged.
    """
    try:
        yield
    except QuartetError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__module__ != _RUST_PANIC:
            raise
        if _is_out_of_memory(error):
            what = f"{what}: memory ran out: {type(error).__name__}"
            raise OutOfMemoryError(f"{what}: {error}", _MEMORY_ADVICE) from error
        raise CheckpointError(f"{what}: {type(error).__name__}: {error}", load_advice(error)) from error


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether a library ran out of memory. PyTorch has an error type for memory of GPUs only; other errors of
    PyTorch and of memory-mapped files are known by their text."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # a rollout worker must not import torch
        or re.search("(can't|cannot) allocate memory", str(error), re.IGNORECASE) is not None
    )


def load_advice(error: BaseException) -> str:
    """Return advice for an error of `transformers` while it reads a policy's folder."""
    if "trust_remote_code" in str(error):
        return "set model.trust_remote_code = true, which runs the model's Python code, only if you trust its source"
    return "copy the folder again from its source, or use an earlier policy"
