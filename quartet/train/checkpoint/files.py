"""Trainer state on disk without pickle: tensors as safetensors, numbers as JSON, with checksums.

For example, `trainer/step_000120_batch_000131/` holds the optimizer moments, the critic, a moving reference and the
random state after train step 120, which trained on batch 131. The policy's weights are in the folder that this step
published; if they are rounded there, the checkpoint holds the exact ones. With LoRA, it holds the adapter's factors. A
folder is written atomically, by all ranks together.
"""

from collections.abc import Callable, Set
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch.distributed.tensor import DTensor

from quartet.errors import CheckpointError
from quartet.files.whole_folder import WRITING, check_folder, whole_folder
from quartet.on_progress import no_progress
from quartet.policy.files import raising_checkpoint_errors
from quartet.policy.lora import has_adapter
from quartet.train.checkpoint.shards import described_tensors, read_tensors, write_tensors
from quartet.train.ranks.base import Ranks
from quartet.train.step import Learner

NUMBERS = "state.json"
"""File of the numbers; the tensors are in safetensors files beside it."""
RANDOM_STATE = "random_state"
WEIGHTS = "weights"
"""Entry for the weights of a parameter, if a policy's folder lacks them or holds them rounded."""
FORMER_CRITIC, CRITIC = "value_head.", "critic."
"""Prefixes of the critic's parameters: in checkpoints of earlier versions of Quartet, and in present ones."""


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    train_step: int
    optimizer_step: int
    reference_followed: int | None = None
    """`MovingReference.followed`. None without a moving reference and in checkpoints of earlier versions."""


class Snapshot(NamedTuple):
    """Copy of a learner's state after a train step, which further training does not change. Each of several ranks
    copies its shards."""

    numbers: Numbers
    tensors: dict[str, torch.Tensor]


def take_snapshot(learner: Learner, train_step: int, *, on_progress: Callable[[], None] = no_progress) -> Snapshot:
    """Copy the learner's state to the CPU's memory. `on_progress` is called after each tensor."""
    reference = learner.moving_reference
    followed = reference.followed if reference else None
    numbers = Numbers(train_step=train_step, optimizer_step=learner.optimizer_step, reference_followed=followed)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in state_tensors(learner).items():
        tensors[name] = _copy(tensor.detach())
        on_progress()
    return Snapshot(numbers, tensors)


def write_checkpoint(
    folder: Path,
    snapshot: Snapshot,
    *,
    ranks: Ranks | None = None,
    durable: bool = False,
    on_progress: Callable[[], None] = no_progress,
) -> None:
    """Write a snapshot to `folder`, replacing an existing folder. All `ranks` call this, at any time.

    With `durable`, the folder survives power loss once this returns on rank 0. `on_progress` is called after each file
    and chunk. Other threads keep running, since safetensors and the hashing release Python's global lock.
    """
    ranks = ranks or Ranks()
    if ranks.rank:
        write_tensors(folder.with_name(folder.name + WRITING), snapshot.tensors, ranks, on_progress)
        return
    with whole_folder(folder, point="checkpoint", durable=durable, on_progress=on_progress) as fresh:
        (fresh / NUMBERS).write_bytes(msgspec.json.encode(snapshot.numbers))
        write_tensors(fresh, snapshot.tensors, ranks, on_progress)


def load_state(checkpoint: Path | None, learner: Learner, *, on_progress: Callable[[], None] = no_progress) -> None:
    """Load the state of a checkpoint; without one, reset the learner's state."""
    if checkpoint is None:
        learner.reset()
    else:
        load_checkpoint(checkpoint, learner, on_progress=on_progress)


def load_checkpoint(folder: Path, learner: Learner, *, on_progress: Callable[[], None] = no_progress) -> int:
    """Load the state into `learner`, bit for bit, and return its train step.

    Raise `CheckpointError`, which names the folder or file, if the state is missing, damaged, or of another model or
    recipe.
    """
    check_folder(folder, on_progress=on_progress)
    with raising_checkpoint_errors(f"cannot load the checkpoint in {folder}"):
        numbers = msgspec.json.decode((folder / NUMBERS).read_bytes(), type=Numbers)
        stored = described_tensors(folder)
    on_progress()
    _require_same_parameters(folder, stored.keys() - {RANDOM_STATE}, learner)
    learner.optimizer.state.clear()
    into = {key: _place_for(key, tensor, learner) for key, tensor in stored.items()}
    with raising_checkpoint_errors(f"cannot load the checkpoint in {folder}"):
        read_tensors(folder, into)
    on_progress()
    learner.optimizer_step = numbers.optimizer_step
    if learner.moving_reference is not None:
        learner.moving_reference.followed = numbers.reference_followed
    torch.set_rng_state(into[RANDOM_STATE])
    return numbers.train_step


def state_tensors(learner: Learner) -> dict[str, torch.Tensor]:
    """Return the random state, the unpublished weights, and the optimizer state, by `parameter name/entry`
    (`model.norm.weight/exp_avg`)."""
    states = learner.optimizer.state
    moments = {
        f"{name}/{entry}": value
        for name, parameter in learner.parameters.items()
        for entry, value in states.get(parameter, {}).items()
    }
    weights = {f"{name}/{WEIGHTS}": parameter for name, parameter in _unpublished(learner).items()}
    return moments | weights | {RANDOM_STATE: torch.get_rng_state()}


def state_bytes(learner: Learner) -> int:
    """Return the size in bytes of a checkpoint's large tensors (moments and unpublished weights) after the first
    optimizer step."""
    trained = [parameter for group in learner.optimizer.param_groups for parameter in group["params"]]
    unpublished = _unpublished(learner).values()
    return 2 * sum(parameter.nbytes for parameter in trained) + sum(parameter.nbytes for parameter in unpublished)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in the CPU's memory; of a sharded tensor, this rank's shard of one."""
    return tensor.clone() if isinstance(tensor, DTensor) else tensor.to("cpu", copy=True).contiguous()


def _require_same_parameters(folder: Path, keys: Set[str], learner: Learner) -> None:
    parameters = learner.parameters
    if missing := {f"{name}/{WEIGHTS}" for name in _unpublished(learner)} - set(map(_current_name, keys)):
        lack = f"it lacks {min(missing)!r}"
        raise CheckpointError(f"the checkpoint in {folder} belongs to another recipe: {lack}", _ADVICE)
    if unknown := {_current_name(key).rpartition("/")[0] for key in keys} - parameters.keys():
        excess = f"it has a tensor for {min(unknown)!r}, which this model does not have"
        raise CheckpointError(f"the checkpoint in {folder} belongs to another model: {excess}", _ADVICE)


def _place_for(key: str, stored: torch.Tensor, learner: Learner) -> torch.Tensor:
    """Return the tensor of the learner that a tensor of a checkpoint is read into, sharded like its parameter. A tensor
    of another shape than the parameter, such as a count of steps, is not sharded."""
    if key == RANDOM_STATE:
        return torch.empty_like(stored, device="cpu")
    name, _, entry = _current_name(key).rpartition("/")
    parameter = learner.parameters[name]
    if entry == WEIGHTS:
        return parameter.detach()
    same_shape = stored.shape == parameter.shape
    device = "cpu" if learner.recipe.train.offload_optimizer else parameter.device
    place = torch.empty_like(parameter.detach() if same_shape else stored, device=device)
    learner.optimizer.state[parameter][entry] = place
    return place


def _current_name(key: str) -> str:
    """Return the present name of a tensor. Checkpoints of earlier versions of Quartet have other names for some
    tensors."""
    return CRITIC + key.removeprefix(FORMER_CRITIC) if key.startswith(FORMER_CRITIC) else key


def _unpublished(learner: Learner) -> dict[str, torch.nn.Parameter]:
    """Return the parameters whose weights the checkpoint must hold: those that the policy's folder lacks, or all
    trained ones if it holds them rounded. With an adapter, all factors, since they are never read from that folder."""
    exact = learner.recipe.train.publish_dtype == "float32" and not has_adapter(learner.model)
    return learner.unpublished if exact else learner.parameters


_ADVICE = "restore the folder from a copy, or start a new run with model.path = the policy of that step"
