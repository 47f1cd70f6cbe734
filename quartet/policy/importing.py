"""Import of a model of any source as a folder with safetensors, checksums and an append-only chat template."""

import shutil
from pathlib import Path

from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from quartet.errors import ConfigError
from quartet.files.whole_folder import CHECKSUMS, whole_folder
from quartet.policy.files import check_policy, raising_checkpoint_errors
from quartet.policy.gguf import load_gguf
from quartet.policy.kind.find import VISION_KINDS
from quartet.policy.renderer import Renderer
from quartet.policy.save import make_place, save_policy
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.policy.weights import weight_files

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


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
    weight_files(source)
    check_policy(source)
    with raising_checkpoint_errors(f"cannot read {source / 'config.json'}"):
        config = AutoConfig.from_pretrained(str(source), local_files_only=True, trust_remote_code=False)
    if config.model_type not in {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *VISION_KINDS}:
        raise ConfigError(
            f"{source} has a model of the architecture {config.model_type!r}, which is not supported",
            f"use a causal language model of `transformers`, or one of {', '.join(sorted(VISION_KINDS))}",
        )
    Renderer(load_tokenizer(source))
