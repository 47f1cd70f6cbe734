"""Loading of a policy's tokenizer without torch, so that processes that read no weights start in half the time."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from quartet.errors import CheckpointError, ConfigError
from quartet.policy.files import WEIGHTS, check_policy, raising_checkpoint_errors

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
GENERATION_CONFIG = "generation_config.json"
_VALUE = re.compile(r"\{%- set (\w+) = (?:true|false|-?\d+|\"(?:[^\"\\]|\\.)*\") -%\}")
_LEADING_VALUES = re.compile(f"(?:{_VALUE.pattern})*")


class _GenerationConfig(msgspec.Struct):
    """Field of a model's generation_config.json that names the tokens that end a response."""

    eos_token_id: int | list[int] | None = None


def load_tokenizer(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load a tokenizer from disk. Raise `CheckpointError`, and no other error, if a file is missing or damaged."""
    check_policy(folder, except_for=WEIGHTS)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise CheckpointError(f"no tokenizer in {folder}", f"add one of {', '.join(TOKENIZER_FILES)}")
    with raising_checkpoint_errors(f"cannot load the tokenizer in {folder}"):
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=trust_remote_code, use_fast=True
        )


def set_template_arguments(tokenizer: PreTrainedTokenizerBase, arguments: Mapping[str, bool | int | str]) -> None:
    """Set `arguments` at the start of the tokenizer's chat template, so that every rendering has them.

    They replace values that an earlier call set: `quartet sft` saves them with the template. Raise `ConfigError` if the
    tokenizer has several templates.
    """
    template = tokenizer.chat_template
    if not arguments or not template:
        return
    if not isinstance(template, str):
        raise ConfigError(
            "model.template_arguments needs one chat template, but the tokenizer has several",
            "keep the one that is used, in chat_template.jinja of the model's folder",
        )
    statements = _LEADING_VALUES.match(template)[0]  # type: ignore[index]  (it also matches nothing)
    former = {match[1]: match[0] for match in _VALUE.finditer(statements)}
    values = former | {name: f"{{%- set {name} = {json.dumps(value)} -%}}" for name, value in arguments.items()}
    tokenizer.chat_template = "".join(values.values()) + template.removeprefix(statements)


def end_token_ids(folder: Path) -> list[int]:
    """Return the tokens that end a response by the model's generation_config.json, or none without that file.

    Models are trained to end some responses with other tokens than that of the chat template, such as a tool call with
    `<|eom_id|>` (Llama 3.1); inference servers stop at each of them. Raise `CheckpointError` for a damaged file.
    """
    file = folder / GENERATION_CONFIG
    if not file.is_file():
        return []
    with raising_checkpoint_errors(f"cannot read {file}"):
        ends = msgspec.json.decode(file.read_bytes(), type=_GenerationConfig).eos_token_id
    return [ends] if isinstance(ends, int) else ends or []


def vocabulary_size(folder: Path, *, trust_remote_code: bool = False) -> int:
    """Return the number of token ids that the policy in `folder` accepts: the rows of its embedding, with padding.

    Raise `CheckpointError` if its config.json is missing or damaged.
    """
    check_policy(folder, except_for=WEIGHTS)
    with raising_checkpoint_errors(f"cannot read the vocabulary size of the model in {folder}"):
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=trust_remote_code)
        return int(config.get_text_config().vocab_size)
