"""Tensors of a checkpoint on disk, as safetensors, by PyTorch's `torch.distributed.checkpoint`.

A process that trains alone writes whole tensors; each of several ranks writes its shards, with their offsets in the
header of its files. Any number of ranks loads either: each reads only the parts that overlap its own shards.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from quartet.policy.save import raising_os_errors
from quartet.train.ranks.base import Ranks

TENSORS = "state.safetensors"
"""File of the tensors, if one process writes them. More than `FILE_BYTES` continue in `state-00001.safetensors`."""
FILE_BYTES = 500 * 10**6
"""Maximum size of a file; a larger tensor has a file of its own."""


def write_tensors(
    folder: Path, tensors: Mapping[str, torch.Tensor], ranks: Ranks, on_progress: Callable[[], None]
) -> None:
    """Write tensors to `folder`, which rank 0 has made. All ranks call this, with the same names.

    `on_progress` is called after each file. Tensors that are not sharded are written by rank 0. Several ranks return
    when the files of all are written.
    """
    files = [list(names) for names in _files(tensors)]
    if ranks.beside is None:
        for number, names in enumerate(files):
            with raising_os_errors(folder):
                own = {name: tensors[name] for name in names}
                save_file(own, folder / (f"state-{number:05d}.safetensors" if number else TENSORS))
            on_progress()
        return
    dist.barrier(ranks.beside)  # rank 0 has made the folder
    numbers = {name: number for number, names in enumerate(files, start=1) for name in names}
    with _raising_first_error():
        save(
            dict(tensors),
            storage_writer=HuggingFaceStorageWriter(str(folder), numbers, save_distributed=True),
            planner=_Planner(on_progress),
            process_group=ranks.beside,
        )


def described_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the whole tensors in `folder`, by name, on the device `meta`; only the headers of the files are read."""
    metadata = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    found = {name: described for name, described in metadata.items() if isinstance(described, TensorStorageMetadata)}
    return {name: torch.empty(one.size, dtype=one.properties.dtype, device="meta") for name, one in found.items()}


def read_tensors(folder: Path, into: dict[str, torch.Tensor]) -> None:
    """Read tensors, or this rank's shards of them, into tensors of the same shapes. The ranks do not communicate."""
    with warnings.catch_warnings(), _raising_first_error():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        load(into, storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)


class _Planner(DefaultSavePlanner):
    """Planner of what each rank writes, with a callback for each of its tensors."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        super().__init__(dedup_save_to_lowest_rank=True)
        self._on_progress = on_progress

    def resolve_data(self, write_item: WriteItem) -> Any:
        self._on_progress()
        return super().resolve_data(write_item)


@contextmanager
def _raising_first_error() -> Iterator[None]:
    """Convert PyTorch's error about several ranks, which is no `Exception`, to the first rank's own error."""
    try:
        yield
    except CheckpointException as error:
        rank, (cause, _) = next(iter(sorted(error.failures.items())))
        cause.add_note(f"raised by rank {rank}")
        raise cause from None


def _files(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """Divide the tensors, as far as this process holds them, among files of at most `FILE_BYTES`."""
    file: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        if file and sum(each.nbytes for each in file.values()) + own.nbytes > FILE_BYTES:
            yield file
            file = {}
        file[name] = own
    yield file
