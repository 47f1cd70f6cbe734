"""Ranks: the processes that train one policy together, each on its share of every minibatch.

`Ranks` is a process that trains alone. `ShardingRanks` (`fsdp.py`), with the same interface, is one of several
processes. All ranks run the same train step on the same batch, each on its own microbatches. They exchange the
quantities that depend on all microbatches.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, distribute_tensor

from quartet.errors import LedgerError, QuartetError, SetupError
from quartet.train.ranks.orders import End, Order

Model = TypeVar("Model", bound=torch.nn.Module)
OF_MACHINE = (LedgerError, SetupError)
"""Errors that do not depend on the batch."""
MET_BY_ALL = "all ranks raised an error here, before any of them exchanged data"
"""Note that is added to an error after which the ranks can continue together."""


class RankLostError(QuartetError):
    """Raised if the ranks cannot continue together, because one of them ended or failed. All must be started again."""


class Ranks:
    """A process that trains a policy alone."""

    rank: int = 0
    """Number of this process. Rank 0 alone speaks to the ledger and writes files."""
    size: int = 1
    """Number of processes."""
    beside: dist.ProcessGroup | None = None
    """Connection for exchanges by the thread that writes checkpoints, while the main thread trains."""

    def sharded(self, model: Model) -> Model:
        """Return a copy of the model whose weights are spread over the ranks; the model itself if there is one rank.

        Each rank keeps a vision tower whole.
        """
        return model

    def before_backward(self, *, last: bool) -> None:
        """Announce a backward pass. With the `last` of a minibatch, gradients of sharded models are summed over the
        ranks."""

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum gradients over the ranks, for parameters that each rank holds whole. A parameter that has no gradient on
        any rank gets none."""

    def gather(self, data: bytes) -> list[bytes]:
        """Return the data of all ranks, by rank. This and the other exchanges are calls that all ranks must make."""
        return [data]

    @contextmanager
    def together(self, order: Order) -> Iterator[None]:
        """Run the block on all ranks: rank 0 sends the order, and the others run the block when they receive it.

        If only some ranks raise an error in the block, the ranks cannot go on together; see `require_all`.
        """
        yield

    @contextmanager
    def alike(self) -> Iterator[None]:
        """Run a block that exchanges no data and is the same on all ranks.

        If all ranks raise an error, each raises its own, and they can go on together. An error of some ranks is also
        raised by the others, as a `QuartetError`.
        """
        error: Exception | None = None
        try:
            yield
        except Exception as raised:  # noqa: BLE001  (raised again below)
            error = raised
        failures = self.gather(f"{type(error).__name__}: {error}".encode() if error else b"")
        if error is not None:
            if self.size > 1 and all(failures):
                error.add_note(MET_BY_ALL)
            raise error
        for rank, failure in enumerate(failures):
            if failure:
                raise QuartetError(f"{self.named(rank)} failed: {failure.decode(errors='replace')}")

    def named(self, rank: int) -> str:
        """Return the name of a rank for errors, with the range of all ranks."""
        return f"rank {rank} (of ranks 0 to {self.size - 1})"

    def receive(self) -> Order:
        """Wait for the next order of rank 0 and return it. A process that trains alone gets `End`."""
        return End()

    def require_all(self) -> None:
        """Raise `RankLostError` if a rank was lost, or if an earlier block (see `alike`) ended on it with an error that
        the other ranks did not raise."""

    def numbers(self, own: Mapping[str, float]) -> list[dict[str, float]]:
        """Return the numbers of all ranks, by rank and name; a name may be missing on some ranks."""
        data = msgspec.msgpack.encode({name: float(number) for name, number in own.items()})
        return [msgspec.msgpack.decode(part, type=dict[str, float]) for part in self.gather(data)]

    def merged(self, columns: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Return the columns of all ranks in one dictionary, as float32. No two ranks may have the same key."""
        data = msgspec.msgpack.encode({key: column.astype(np.float32).tobytes() for key, column in columns.items()})
        return {
            key: np.frombuffer(column, dtype=np.float32)
            for part in self.gather(data)
            for key, column in msgspec.msgpack.decode(part, type=dict[int, bytes]).items()
        }


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the shards of all ranks; a tensor that is not sharded is returned as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor on the parameter's device; if the parameter is sharded, only this rank's shard of the
    tensor. A tensor of another shape than the parameter, such as a count of steps, is not sharded."""
    tensor = tensor.to(parameter.device)
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    # With no source rank, each rank takes its shard of its own copy, without communication.
    return distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)
