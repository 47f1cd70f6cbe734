"""Ranks that share the weights of a policy by FSDP2 (`torch.distributed.fsdp.fully_shard`).

Each rank holds a shard of every weight and of its optimizer state. A layer's weights are gathered for its forward and
backward pass, so all ranks must make the same passes in the same order. Only a vision tower is whole on every rank:
each rank runs it for the pictures in its own rows, which may be none.
"""

import copy
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from quartet.config import Recipe, Runtime
from quartet.errors import ConfigError, QuartetError
from quartet.policy.kind.find import vision_kind
from quartet.train.ranks.base import MET_BY_ALL, OF_MACHINE, Model, RankLostError, Ranks
from quartet.train.ranks.orders import End, Order
from quartet.train.ranks.rendezvous import join
from quartet.train.step import NonFiniteError

LONGEST_WAIT = timedelta(days=30)
"""Timeout of a rank that waits for an order, or for the others while a checkpoint is written. Rank 0 may wait long for
a batch; if it dies, its connections close."""
HEARTBEAT_SHARE = 0.75
"""Share of the heartbeat timeout that rank 0 waits for the other ranks."""
MARGIN_SECONDS = 10.0
"""Time beyond the ledger's timeout for which the other ranks wait for rank 0 in an exchange."""
LOST = ("connect", "timed out", "timeout", "socket", "broken pipe")
"""Parts of the texts of gloo's errors that report a lost or silent rank, in lower case."""
ERROR, MACHINE_ERROR = "quartet_error", "quartet_machine_error"
"""Keys of the ranks' store under which a rank leaves the error that it ends with; the second for `OF_MACHINE`."""


class Timeouts(NamedTuple):
    """Seconds after which an exchange fails if another rank does not take part in it."""

    first: float
    """Timeout of rank 0."""
    others: float


class ShardingRanks(Ranks):
    """One of several ranks. The environment variables of `torchrun` hold its number and the address of rank 0."""

    def __init__(self, timeouts: Timeouts) -> None:
        """Wait for the other ranks, for the longer of both timeouts."""
        joining = timedelta(seconds=max(timeouts))
        self._store, self.rank, self.size = join(joining)
        self._store.set_timeout(joining)
        timeout = timedelta(seconds=timeouts.others if self.rank else timeouts.first)
        dist.init_process_group("gloo", store=self._store, rank=self.rank, world_size=self.size, timeout=timeout)
        self._mesh = init_device_mesh("cpu", (self.size,))
        waiting = LONGEST_WAIT if self.rank else timeout
        self._orders: Any = dist.new_group(backend="gloo", timeout=waiting)
        self.beside: Any = dist.new_group(backend="gloo", timeout=waiting)
        self._sharded: list[FSDPModule] = []
        self._broken = False

    def close(self) -> None:
        """End the other ranks, if this is rank 0 and they can still receive an order."""
        if self._broken:  # the connections end with this process
            return
        with suppress(RankLostError):
            if self.rank == 0:
                with self.together(End()):
                    pass
            dist.destroy_process_group()

    def sharded(self, model: Model) -> Model:
        model = copy.deepcopy(model)
        layers = set(getattr(model, "_no_split_modules", None) or ())
        tower = _tower(model)
        seeing = set(tower.modules()) if tower else set()
        modules = [one for one in model.modules() if type(one).__name__ in layers and one not in seeing]
        kept_whole = set(tower.parameters()) if tower else set()
        for module in (*modules, model):
            fully_shard(module, mesh=self._mesh, reshard_after_forward=True, ignored_params=kept_whole)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                self._sharded.append(module)
                # Weights of tokens are means over the whole minibatch, so gradients are summed, not averaged.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        return model

    def before_backward(self, *, last: bool) -> None:
        for module in self._sharded:
            module.set_requires_gradient_sync(last, recurse=False)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        parameters = list(parameters)
        if not parameters:  # gloo does not reduce empty tensors
            return
        have_gradient = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
        dist.all_reduce(have_gradient, dist.ReduceOp.MAX)
        for parameter, is_needed in zip(parameters, have_gradient.tolist(), strict=True):
            if is_needed:
                if parameter.grad is None:  # this rank has no tokens, or no pictures, of the minibatch
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)

    def gather(self, data: bytes) -> list[bytes]:
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(data)]))
        longest = max(1, *map(int, sizes))
        parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, _bytes(data, longest))
        return [part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]

    @contextmanager
    def together(self, order: Order) -> Iterator[None]:
        self.require_all()
        with self._in_step():
            if self.rank == 0:
                self._broadcast(msgspec.msgpack.encode(order))
            yield

    def receive(self) -> Order:
        with self._in_step():
            return msgspec.msgpack.decode(self._broadcast(b""), type=Order)

    def require_all(self) -> None:
        if self._broken:
            raise RankLostError(
                f"{self.named(self.rank)} cannot continue: an earlier error occurred on some ranks only",
                "start all ranks again, as the supervisor and torchrun do",
            )

    def _broadcast(self, data: bytes) -> bytes:
        size = torch.tensor([len(data)])
        dist.broadcast(size, src=0, group=self._orders)
        content = _bytes(data, int(size))
        dist.broadcast(content, src=0, group=self._orders)
        return content.numpy().tobytes()

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """Mark the ranks as broken if the block raises an error that the others may not have raised.

        A lost connection becomes the error that the lost rank left behind. It is a `RankLostError` if the rank left
        none, or one that does not depend on the batch.
        """
        try:
            yield
        except Exception as error:
            if self._broken or is_shared(error):
                raise
            self._broken = True
            if not is_of_a_connection(error):
                self._leave(error)
                raise
            raise self._reason(error) from error

    def _leave(self, error: Exception) -> None:
        with suppress(RuntimeError):  # the store ended with rank 0
            key = MACHINE_ERROR if isinstance(error, OF_MACHINE) else ERROR
            self._store.set(key, f"{self.named(self.rank)} failed: {type(error).__name__}: {error}")

    def _reason(self, error: Exception) -> QuartetError:
        with suppress(RuntimeError):
            for key, kind in ((MACHINE_ERROR, RankLostError), (ERROR, QuartetError)):
                if self._store.check([key]):
                    return kind(self._store.get(key).decode(errors="replace"))
        return RankLostError(
            f"{self.named(self.rank)} lost the connection to another rank: {str(error)[:200]}",
            "see the logs of the other ranks: one was killed, for example by a lack of memory, or hangs; if one needs "
            "long to load the policy, raise runtime.heartbeat_timeout_seconds",
        )


@contextmanager
def joined_ranks(recipe: Recipe) -> Iterator[Ranks]:
    """Join the ranks that the supervisor or `torchrun` has started, and leave them at the end of the block.

    Raises `ConfigError` if the recipe names another number of ranks.
    """
    started, processes = int(os.environ.get("WORLD_SIZE", "1")), recipe.train.processes
    if started != processes:
        raise ConfigError(
            f"train.processes = {processes}, but this trainer was started as {started}",
            f"start it by `torchrun --nproc-per-node {processes} -m quartet.runtime.module trainer RUN_DIR`",
        )
    if processes == 1:
        yield Ranks()
        return
    ranks = ShardingRanks(exchange_timeouts(recipe.runtime))
    try:
        yield ranks
    finally:
        ranks.close()


def exchange_timeouts(runtime: Runtime) -> Timeouts:
    """Return how long the ranks wait for each other in an exchange.

    Rank 0 reports a rank that hangs before the supervisor misses its heartbeats and kills all of them. The other ranks
    wait longer, since rank 0 may wait for the ledger in the middle of a train step.
    """
    first = HEARTBEAT_SHARE * runtime.heartbeat_timeout_seconds
    return Timeouts(first=first, others=max(first, runtime.ledger_timeout_seconds + MARGIN_SECONDS))


def is_shared(error: Exception) -> bool:
    """Return whether all ranks raise the error at the same point: in a block `alike`, or because a sum over all ranks
    is not finite."""
    return isinstance(error, NonFiniteError) or MET_BY_ALL in getattr(error, "__notes__", ())


def is_of_a_connection(error: Exception) -> bool:
    """Return whether a collective call raised the error because a rank is gone or silent.

    Such errors of gloo have no type of their own; its other errors, such as tensors of different sizes, are bugs.
    """
    if isinstance(error, dist.DistNetworkError | dist.DistStoreError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and "gloo" in text and any(sign in text for sign in LOST)


def _tower(model: Any) -> torch.nn.Module | None:
    """Return the vision tower of a model; None for a model that reads only text."""
    kind = vision_kind(model)
    return kind.tower(model) if kind else None


def _bytes(data: bytes, size: int) -> torch.Tensor:
    """Return a tensor of `size` bytes that begins with `data`."""
    return torch.frombuffer(bytearray(data.ljust(size, b"\0")), dtype=torch.uint8)
