"""Trainer state on disk without pickle: tensors as safetensors, numbers as JSON, checksums beside them.

`trainer/step_000120_batch_000131/` holds the state after train step 120, which batch 131 became: optimizer moments and
random state. The weights are the policy that this step published. A folder appears complete or not at all.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from quartet.crash_points import crash_point
from quartet.data.checkpoints import CHECKPOINTS, checkpoints_on_disk
from quartet.errors import CheckpointError
from quartet.train.step import Learner

TENSORS, NUMBERS, CHECKSUMS = "state.safetensors", "state.json", "checksums.json"
RANDOM_STATE = "random_state"
WRITING = ".writing"
T = TypeVar("T")


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    train_step: int
    optimizer_step: int


def save_checkpoint(folder: Path, learner: Learner, train_step: int) -> None:
    """Write `folder`, replacing what is there."""
    fresh = folder.with_name(folder.name + WRITING)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    numbers = Numbers(train_step=train_step, optimizer_step=learner.optimizer_step)
    contents = {TENSORS: save_tensors(_tensors(learner)), NUMBERS: msgspec.json.encode(numbers)}
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    for name, content in {**contents, CHECKSUMS: msgspec.json.encode(checksums)}.items():
        _write_durably(fresh / name, content)
    shutil.rmtree(folder, ignore_errors=True)
    crash_point("checkpoint.before")
    fresh.rename(folder)
    crash_point("checkpoint.after")


def load_checkpoint(folder: Path, learner: Learner) -> int:
    """Put the state into `learner`, bit for bit; returns its train step. Raises `CheckpointError` naming the file."""
    check_files(folder)
    tensors = load_tensors(_read(folder / TENSORS))
    numbers = _decode(folder / NUMBERS, Numbers)
    torch.set_rng_state(tensors.pop(RANDOM_STATE))
    learner.optimizer_step = numbers.optimizer_step
    optimizer, parameters = learner.optimizer, dict(learner.model.named_parameters())
    optimizer.state.clear()
    for key, tensor in tensors.items():
        parameter_name, _, entry = key.rpartition("/")
        if parameter_name not in parameters:
            raise CheckpointError(f"{folder / TENSORS} is of another model: it has {parameter_name!r}", _ADVICE)
        optimizer.state[parameters[parameter_name]][entry] = tensor.to(learner.model.device)
    return numbers.train_step


def check_files(folder: Path) -> None:
    """Compare a checkpoint's files with their checksums. Raises `CheckpointError` naming the file."""
    checksums = _decode(folder / CHECKSUMS, dict[str, str])
    for name in (TENSORS, NUMBERS):
        if hashlib.sha256(_read(folder / name)).hexdigest() != checksums.get(name):
            raise CheckpointError(f"{folder / name} does not match its checksum", _ADVICE)


def prune_checkpoints(run_dir: Path, keep: int, train_step: int) -> None:
    """Delete all but the newest `keep` checkpoints up to the committed `train_step`, and what crashed attempts left.

    Of several attempts at a step the last is the committed one. Call it after the commit only.
    """
    by_step = {found.train_step: found.folder for found in checkpoints_on_disk(run_dir)}
    kept = [folder for step, folder in by_step.items() if step <= train_step][-keep:]
    for folder in (run_dir / CHECKPOINTS).glob("step_*"):
        if folder not in kept:
            shutil.rmtree(folder)


def _tensors(learner: Learner) -> dict[str, torch.Tensor]:
    """Optimizer state as `parameter name/entry`, for example `model.norm.weight/exp_avg`."""
    states = learner.optimizer.state
    tensors = {
        f"{name}/{entry}": value.detach().contiguous()
        for name, parameter in learner.model.named_parameters()
        for entry, value in states.get(parameter, {}).items()
    }
    return tensors | {RANDOM_STATE: torch.get_rng_state()}


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _decode(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(_read(path), type=kind)
    except msgspec.DecodeError as error:
        raise CheckpointError(f"{path} is damaged: {error}", _ADVICE) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}", _ADVICE) from error


_ADVICE = "restore the folder from a copy, or start a new run with model.path = the policy of that step"
