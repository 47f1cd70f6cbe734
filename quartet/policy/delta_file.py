"""Delta of a policy: the values that differ from another version, bit for bit, in one file beside the whole weights.

The values overwrite those of the base, so applying a delta adds no rounding error. Their positions are stored as steps
of one byte, so in bfloat16 a changed value takes three bytes. A tensor of which more than two thirds change is stored
whole. The file has no checksum in its folder, since damage to it does not damage the policy: the digests of the weights
before and after it are compared instead.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from quartet.errors import DeltaError
from quartet.policy.digest import weights_digest
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.save import raising_os_errors
from quartet.policy.weights import weights_bytes

DELTA_FILE = "weights.delta"
STEPS, VALUES, WHOLE = "steps", "values", "whole"
"""Entries of a tensor in the file, as `NAME/ENTRY`: steps to the changed positions and their values, or all values."""
SKIP = 255
"""Step that passes over 255 positions. A smaller step S passes over S positions, and the next one has changed."""
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer type by the size of a value in bytes. Bits are compared, since 0 equals -0 and NaN differs from itself."""


class Version(NamedTuple):
    """Weights of a policy's version in the CPU's memory. It is named after its folder."""

    name: str
    digest: str
    weights: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, name: str, weights: Mapping[str, torch.Tensor]) -> "Version":
        """Return the version with the digest of its weights, which are bfloat16."""
        here = {key: tensor.detach().cpu().contiguous() for key, tensor in weights.items()}
        return cls(name, weights_digest(here, torch.bfloat16), here)


class Delta(NamedTuple):
    """Delta on disk. `base` is the name of the version that it changes."""

    file: Path
    base: str
    base_digest: str
    digest: str
    num_bytes: int


def write_delta(folder: Path, base: Version, version: Version) -> None:
    """Write to `folder` the values by which the version differs from its base."""
    described = {"base": base.name, "base_digest": base.digest, "digest": version.digest}
    file = folder / DELTA_FILE
    with raising_os_errors(file):
        save_file(changes(base.weights, version.weights), file, metadata=described)


def updated(held: Version, folder: Path) -> tuple[Version, int]:
    """Return the version in `folder`, by the deltas since the held version, and their size in bytes.

    Raises `CheckpointError` if the deltas do not lead to exactly this version, or if the whole weights are shorter.
    """
    deltas = _deltas_since(held.digest, folder)
    weights = held.weights
    for delta in deltas:
        with raising_checkpoint_errors(f"{delta.file} is damaged"):
            weights = changed(weights, load_file(delta.file))
    version = Version.of(folder.name, weights)
    if version.digest != deltas[-1].digest:
        raise DeltaError(f"{deltas[-1].file} is damaged: the weights after it do not match its digest")
    return version, sum(delta.num_bytes for delta in deltas)


def changes(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the entries of a delta from `before` to `after`."""
    entries: dict[str, torch.Tensor] = {}
    for name, tensor in after.items():
        old = before.get(name)
        if old is None or (old.shape, old.dtype) != (tensor.shape, tensor.dtype):
            entries[f"{name}/{WHOLE}"] = tensor
            continue
        positions = (_bits(tensor) != _bits(old)).nonzero()[:, 0]
        steps, values = steps_to(positions), tensor.view(-1)[positions]
        if steps.nbytes + values.nbytes >= tensor.nbytes:
            entries[f"{name}/{WHOLE}"] = tensor
        elif len(positions):
            entries |= {f"{name}/{STEPS}": steps, f"{name}/{VALUES}": values}
    return entries


def changed(before: Mapping[str, torch.Tensor], entries: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights `before` with the entries of a delta, as new tensors where they differ."""
    after = dict(before)
    for key, stored in entries.items():
        name, _, entry = key.rpartition("/")
        if entry == WHOLE:
            after[name] = stored
        elif entry == VALUES:
            after[name] = before[name].clone()
            after[name].view(-1)[positions_of(entries[f"{name}/{STEPS}"])] = stored
    return after


def steps_to(positions: torch.Tensor) -> torch.Tensor:
    """Return the steps, uint8, to rising positions."""
    passed = torch.diff(positions, prepend=positions.new_tensor([-1])) - 1
    skips = passed // SKIP
    ends = (skips + 1).cumsum(0) - 1
    steps = torch.full((int(skips.sum()) + len(positions),), SKIP, dtype=torch.uint8)
    steps[ends] = (passed % SKIP).to(torch.uint8)
    return steps


def positions_of(steps: torch.Tensor) -> torch.Tensor:
    """Return the positions to which `steps` lead."""
    arrives = steps != SKIP
    return (steps.long() + arrives).cumsum(0)[arrives] - 1


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(_BITS[tensor.itemsize])


def _deltas_since(digest: str, folder: Path) -> list[Delta]:
    """Return the deltas, oldest first, from the weights with this digest to the policy in `folder`."""
    found = [_described(folder / DELTA_FILE)]
    while found[-1].base_digest != digest:
        found.append(_described(folder.parent / Path(found[-1].base).name / DELTA_FILE))
        if sum(delta.num_bytes for delta in found) > weights_bytes(folder):
            raise DeltaError(f"the deltas since the held version are larger than the whole weights in {folder}")
    return found[::-1]


def _described(file: Path) -> Delta:
    """Return the description of a delta, from the file's header."""
    if not file.is_file():
        raise DeltaError(f"there is no {file}: the trainer has restarted, or the version is deleted")
    with raising_checkpoint_errors(f"{file} is damaged"), safe_open(file, framework="pt") as opened:
        described = opened.metadata()
        size = file.stat().st_size
        return Delta(file, described["base"], described["base_digest"], described["digest"], size)
