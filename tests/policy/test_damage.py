"""Damaged policies: every change is noticed by its checksum, and without checksums every error is the named one."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import damage

from quartet.errors import CheckpointError, OutOfMemoryError
from quartet.files.whole_folder import CHECKSUMS
from quartet.policy import save
from quartet.policy.files import check_policy
from quartet.policy.load import LoadedPolicy, load_policy
from quartet.policy.save import save_policy
from quartet.policy.tokenizer_files import load_tokenizer
from quartet.policy.weights import read_weights

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
LOADERS: tuple[Callable[[Path], object], ...] = (load_policy, read_weights)


@pytest.fixture
def copied(policy_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(policy_folder, tmp_path / "copy"))


@pytest.mark.parametrize("load_it", LOADERS)
@pytest.mark.parametrize("name", [*FILES, CHECKSUMS])
def test_zeroed_files_are_refused_by_every_loader(load_it: Callable[[Path], object], name: str, copied: Path) -> None:
    """What power loss makes of files that were never synced."""
    (copied / name).write_bytes(bytes((copied / name).stat().st_size))
    with pytest.raises(CheckpointError, match=name):
        load_it(copied)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_tokenizer_is_checked_without_reading_the_weights(name: str, copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    load_tokenizer(copied)
    (copied / name).write_bytes((copied / name).read_bytes() + b" ")
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        load_tokenizer(copied)


@pytest.mark.slow
@given(place=st.integers(min_value=0), bit=st.integers(0, 7), name=st.sampled_from([*FILES, CHECKSUMS]))
@settings(max_examples=300)
def test_every_flipped_bit_is_noticed(policy_folder: Path, place: int, bit: int, name: str) -> None:
    file = policy_folder / name
    content = file.read_bytes()
    place %= len(content)
    file.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    try:
        with pytest.raises(CheckpointError):
            check_policy(policy_folder)
    finally:
        file.write_bytes(content)
    check_policy(policy_folder)


def test_weights_without_a_checksum_are_refused(copied: Path) -> None:
    shutil.copy(copied / "model.safetensors", copied / "model-00002-of-00002.safetensors")
    with pytest.raises(CheckpointError, match="has no checksum"):
        read_weights(copied)


def test_a_policy_that_another_program_made_needs_no_checksums(copied: Path) -> None:
    (copied / CHECKSUMS).unlink()
    load_policy(copied)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 160), marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", FILES)
def test_damage_without_checksums_raises_checkpoint_error_or_loads(
    policy_folder: Path, tmp_path: Path, name: str, seeds: range
) -> None:
    """Policies of other programs: whatever a library raises over them is told as a damaged policy."""
    outcomes = {"loaded": 0, "refused": 0}
    for seed in seeds:
        folder = Path(shutil.copytree(policy_folder, tmp_path / str(seed)))
        (folder / CHECKSUMS).unlink()
        damage(folder / name, Random(seed))
        try:
            load_policy(folder)
            outcomes["loaded"] += 1
        except (CheckpointError, OutOfMemoryError):  # a damaged config.json may ask for any size
            outcomes["refused"] += 1
        shutil.rmtree(folder)
    assert outcomes["refused"] or name == "generation_config.json", "the damage is none"


@pytest.mark.parametrize("name", FILES)
def test_with_checksums_every_damage_is_refused(policy_folder: Path, tmp_path: Path, name: str) -> None:
    for seed in range(20):
        folder = Path(shutil.copytree(policy_folder, tmp_path / str(seed)))
        damage(folder / name, Random(seed))
        with pytest.raises(CheckpointError, match=name):
            load_policy(folder)


@torch.no_grad()
def test_large_weights_are_written_and_read_in_parts_that_are_reported(
    policy: LoadedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(save, "SHARD_SIZE", "30KB")
    steps: list[int] = []
    save.write_policy(policy.model, policy.tokenizer, tmp_path / "parts", lambda: steps.append(1))
    files = list((tmp_path / "parts").glob("model-*.safetensors"))
    assert len(files) == len(steps) > 2
    save_policy(policy.model, policy.tokenizer, tmp_path / "saved")
    steps.clear()
    again = load_policy(tmp_path / "saved", on_progress=lambda: steps.append(1)).model
    assert len(steps) > len(files)
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in policy.model.state_dict().items())
    (tmp_path / "saved" / files[1].name).unlink()
    with pytest.raises(CheckpointError, match=files[1].name):
        load_policy(tmp_path / "saved")
