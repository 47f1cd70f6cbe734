"""The tokenizer of a policy. A file of its own: what reads no weights, as the worker, starts in half the time."""

from pathlib import Path

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from quartet.errors import CheckpointError
from quartet.policy.files import WEIGHTS, check_policy, raising_checkpoint_errors

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """From disk only. Raises `CheckpointError` when something is missing or damaged, never another error for it."""
    check_policy(folder, except_for=WEIGHTS)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise CheckpointError(f"no tokenizer in {folder}", f"expected one of {', '.join(TOKENIZER_FILES)}")
    with raising_checkpoint_errors(f"cannot load the tokenizer in {folder}"):
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code, use_fast=True
        )


def vocabulary_size(folder: Path, *, trust_remote_code: bool = False) -> int:
    """Return how many tokens the policy in `folder` can read: the rows of its embedding, padding included.

    Raises `CheckpointError` when its config.json is missing or damaged.
    """
    check_policy(folder, except_for=WEIGHTS)
    with raising_checkpoint_errors(f"cannot read the vocabulary size of the model in {folder}"):
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=trust_remote_code)
        return int(config.get_text_config().vocab_size)
