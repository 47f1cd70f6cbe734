"""Reading of GGUF files, the format of llama.cpp, as policies with weights in float32."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from quartet.errors import CheckpointError, ConfigError, SetupError
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.load import LoadedPolicy
from quartet.policy.whole_load import unread_weights

MAGIC = b"GGUF"
PRE_TOKENIZERS = {
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
}
"""Pre-tokenizers by their names in GGUF files, for which `transformers` makes those of GPT-2 instead."""
HUGGING_FACE_FORMAT = "import the model's folder in Hugging Face format instead"
ROPE_FACTORS = "rope_freqs.weight"
"""Tensor in which llama.cpp keeps the scaling of Llama 3's positions."""
READ_WITH_SCALING = ("gpt-oss",)
"""Architectures of which `transformers` reads the scaling of the positions."""
LIKE_GPT2 = ("gpt-2", "phi-2", "mpt", "olmo", "jais")
"""Names of pre-tokenizers that are GPT-2's."""


def load_gguf(file: Path) -> LoadedPolicy:
    """Load model and tokenizer from a GGUF file; quantised weights are unpacked.

    Raise `SetupError` if a package is missing, `ConfigError` for an architecture or a pre-tokenizer that `transformers`
    cannot read from GGUF, and `CheckpointError` for any other file.
    """
    if missing := [package for package in ("gguf", "accelerate") if find_spec(package) is None]:
        raise SetupError(f"reading GGUF files needs the package {missing[0]!r}", "pip install 'quartet-rl[gguf]'")
    from transformers import GgufConfig

    pre_tokenizer = _check_header(file)
    transformers_logging.disable_progress_bar()
    with raising_checkpoint_errors(f"cannot read {file}"):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
            trust_remote_code=False,
            output_loading_info=True,
        )
        model, report = loaded
        if names := unread_weights(report):
            raise CheckpointError(
                f"{file} lacks weights of its model: {', '.join(names[:5])}",
                "download the file again; `transformers` reads no model that is split into several files",
            )
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, trust_remote_code=False)
    if pre_tokenizer in PRE_TOKENIZERS:
        tokenizer.backend_tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer]
    elif pre_tokenizer not in LIKE_GPT2 and isinstance(
        tokenizer.backend_tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel
    ):
        raise ConfigError(
            f"{file} has the pre-tokenizer {pre_tokenizer!r}, in whose place `transformers` puts GPT-2's",
            HUGGING_FACE_FORMAT,
        )
    return LoadedPolicy(model.eval(), tokenizer)


def _check_header(file: Path) -> str:
    """Check the architecture that the file names, and that `transformers` reads all of it. Return the name of the
    pre-tokenizer."""
    from gguf import GGUFReader

    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{file} is not a GGUF file", "give a GGUF file, or the folder of a model")
    with raising_checkpoint_errors(f"cannot read {file}"):
        reader = GGUFReader(file)
        fields = reader.fields
        architecture = fields["general.architecture"].contents()
        pre_tokenizer = fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else ""
    scaling = None if architecture in READ_WITH_SCALING else fields.get(f"{architecture}.rope.scaling.type")
    if ROPE_FACTORS in {tensor.name for tensor in reader.tensors} or (scaling and scaling.contents() != "none"):
        raise ConfigError(
            f"{file} scales its rotary positions, which `transformers` does not read from GGUF", HUGGING_FACE_FORMAT
        )
    try:
        AutoConfig.from_pretrained(str(file.parent), gguf_file=file.name, trust_remote_code=False)
    except (ValueError, NotImplementedError, KeyError) as error:
        raise ConfigError(
            f"{file} has a model of the architecture {architecture!r}, which `transformers` cannot read from GGUF: "
            f"{error}",
            HUGGING_FACE_FORMAT,
        ) from error
    return pre_tokenizer
