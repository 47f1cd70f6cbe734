"""Export of a run's policy as a folder for other programs: whole weights, or the adapter alone."""

import shutil
from pathlib import Path

from quartet.errors import CheckpointError, ConfigError
from quartet.policy.adapter import ADAPTER_CONFIG, ADAPTER_FOLDER, ADAPTER_WEIGHTS, is_adapter
from quartet.policy.files import check_policy
from quartet.policy.load import load_policy
from quartet.policy.save import make_place, save_policy
from quartet.policy.tokenizer_files import load_tokenizer


def export_whole(policy: Path, output: Path, *, trust_remote_code: bool = False) -> None:
    """Write the policy in the folder `policy` to `output` with whole weights; an adapter is merged with its base."""
    make_place(output)
    model, tokenizer, pictures = load_policy(policy, trust_remote_code=trust_remote_code)
    save_policy(model, tokenizer, output, pictures=pictures)


def export_adapter(policy: Path, output: Path, *, trust_remote_code: bool = False) -> None:
    """Write the adapter of the policy in the folder `policy`, and its tokenizer, to `output`.

    There is no config.json, so that `transformers` loads the base that the adapter names. Raises `ConfigError` for a
    policy without an adapter, and `CheckpointError` if `output` is not empty.
    """
    source = policy if is_adapter(policy) else policy / ADAPTER_FOLDER
    if not is_adapter(source):
        raise ConfigError(f"the policy in {policy} has no adapter", "export whole weights (--form merged)")
    make_place(output)
    if output.exists() and any(output.iterdir()):
        raise CheckpointError(f"{output} is not empty", "choose another folder; nothing was overwritten")
    check_policy(policy)
    output.mkdir(exist_ok=True)
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        shutil.copyfile(source / name, output / name)
    load_tokenizer(policy, trust_remote_code=trust_remote_code).save_pretrained(str(output))
