"""Import of a model of any source as a folder with safetensors, checksums and an append-only chat template."""

import shutil
from pathlib import Path

import msgspec
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from quartet.errors import CheckpointError, ConfigError
from quartet.files.whole_folder import CHECKSUMS, whole_folder
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.gguf import load_gguf
from quartet.policy.kind.find import VISION_KINDS
from quartet.policy.renderer import Renderer
from quartet.policy.save import make_place, save_policy
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.policy.weights import weight_shapes

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
INDEX = "model.safetensors.index.json"
"""File that names the file of every tensor, if there are several files."""


class _Index(msgspec.Struct):
    """Field of the index that maps the name of every tensor to the name of its file."""

    weight_map: dict[str, str]


def import_model(source: Path, folder: Path) -> None:
    """Write the model in `source`, a GGUF file or a folder in Hugging Face format, to `folder`.

    A folder is copied file by file, without pickles and subfolders. Raise `ConfigError` if the architecture is not
    supported or the chat template is missing or not append-only, and `CheckpointError` for damaged files.
    """
    make_place(folder)
    if source.is_dir():
        _check_folder(source)
        with whole_folder(folder, point="policy") as fresh:
            for file in source.iterdir():
                if file.is_file() and file.suffix not in PICKLES and file.name != CHECKSUMS:
                    shutil.copyfile(file, fresh / file.name)
        return
    if not source.is_file():
        raise ConfigError(f"no file or folder at {source}", "give a GGUF file, or the folder of a model")
    model, tokenizer, _ = load_gguf(source)
    Renderer(tokenizer)
    save_policy(model, tokenizer, folder)


def _check_folder(source: Path) -> None:
    _check_weights(source)
    check_policy(source)
    with raising_checkpoint_errors(f"cannot read {source / 'config.json'}"):
        config = AutoConfig.from_pretrained(str(source), local_files_only=True, trust_remote_code=False)
    if config.model_type not in {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *VISION_KINDS}:
        raise ConfigError(
            f"{source} has a model of the architecture {config.model_type!r}, which is not supported",
            f"use a causal language model of `transformers`, or one of {', '.join(sorted(VISION_KINDS))}",
        )
    Renderer(load_tokenizer(source))


def _check_weights(source: Path) -> None:
    """Raise `CheckpointError` if a file of weights is cut off, or lacks a tensor that the index says it has."""
    found, index = weight_shapes(source), source / INDEX
    if not index.exists():
        return
    with raising_checkpoint_errors(f"cannot read {index}"):
        file_of = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
    if incomplete := sorted({file for name, file in file_of.items() if name not in found}):
        raise CheckpointError(
            f"{', '.join(incomplete[:5])} in {source} missing or incomplete, by its {INDEX}",
            "download or copy these files again; an interrupted download leaves such a folder",
        )
