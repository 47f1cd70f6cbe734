"""The tokenizer of a policy. A file of its own: what reads no weights, as the worker, starts in half the time."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from quartet.errors import CheckpointError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """From disk only. Raises `CheckpointError` that names the file when something is missing or damaged."""
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise CheckpointError(f"no tokenizer in {folder}", f"expected one of {', '.join(TOKENIZER_FILES)}")
    try:
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code, use_fast=True
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"cannot load the tokenizer in {folder}: {error}", load_advice(error)) from error


def load_advice(error: Exception) -> str:
    """What to do about an error of `transformers` while it reads a policy's folder."""
    if "trust_remote_code" in str(error):
        return "the model brings its own Python code; set model.trust_remote_code = true only if you trust its source"
    return "copy the folder again from its source, or use an earlier policy"
