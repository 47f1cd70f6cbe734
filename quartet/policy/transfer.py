"""Transfer of weights from the trainer's memory to one engine, by `torch.distributed`.

The trainer listens with a store. An engine asks there for a version; then both form a group of two, and the trainer
broadcasts every tensor to it. The group ends with the transfer, so engines take a version each at its own time, and an
engine that is away or dies delays neither the trainer nor another engine. Only PyTorch and the standard library are
imported: vLLM's workers use this file too.
"""

import atexit
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]  (documented)

from quartet.errors import BroadcastError
from quartet.policy.digest import weights_digest

OFFER_FILE = "broadcast.json"
"""File in a policy's folder that says where, and as what, the trainer offers the weights."""
KEPT_VERSIONS = 2
"""Number of versions that the trainer keeps in memory: engines load one while the next is being written."""
MAX_TRANSFERS = 64
"""Number of engines that are answered at once, each in a thread. Others wait until one of these has its answer, or is
given up."""
POLL_SECONDS, CLOSE_SECONDS = 0.05, 2.0
LOG = logging.getLogger(__name__)


class Offer(NamedTuple):
    """Weights that a trainer offers."""

    host: str
    port: int
    backend: str
    name: str
    """Name of the version's folder."""
    digest: str
    tensors: dict[str, tuple[str, list[int]]]
    """Data type and shape of each tensor."""

    @classmethod
    def read(cls, folder: Path) -> "Offer | None":
        """Return the offer in a policy's folder; None without one."""
        file = folder / OFFER_FILE
        return cls(**json.loads(file.read_text())) if file.is_file() else None

    def empty(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Return uninitialised tensors for the weights, in the order in which they are sent."""
        return {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            for name, (dtype, shape) in sorted(self.tensors.items())
        }


class Sender:
    """Trainer's side: keeps the newest versions in memory, and sends each to the engines that ask for it."""

    def __init__(self, host: str, backend: str, timeout_seconds: float) -> None:
        """Listen on `host`, at a free port. A transfer in which the engine is silent for the timeout is given up."""
        self._host, self._backend, self._timeout = host, backend, timedelta(seconds=timeout_seconds)
        listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._port: int = listener.getsockname()[1]
        self._store = TCPStore(
            host, self._port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        self._held: dict[str, Mapping[str, torch.Tensor]] = {}
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start("weights-sender", self._listen)
        atexit.register(self.close)  # PyTorch aborts a process that ends while another thread is in one of its calls

    def offer(self, folder: Path, name: str, weights: Mapping[str, torch.Tensor]) -> None:
        """Keep a copy of the weights for engines, and write the offer to `folder`. Nothing waits for an engine."""
        held = {key: tensor.detach().cpu().clone() for key, tensor in weights.items()}
        tensors = {key: (str(each.dtype).removeprefix("torch."), list(each.shape)) for key, each in held.items()}
        offer = Offer(self._host, self._port, self._backend, name, digest_of(held), tensors)
        (folder / OFFER_FILE).write_text(json.dumps(offer._asdict()))
        older = [*self._held.items()][-(KEPT_VERSIONS - 1) :]
        self._held = {**dict(older), name: held}

    def close(self) -> None:
        """Answer no more engines, and wait a short time for transfers in progress."""
        self._closing.set()
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        atexit.unregister(self.close)

    def _start(self, name: str, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, name=name, daemon=True))
        self._threads[-1].start()

    def _listen(self) -> None:
        """Answer each engine that asks, in a thread of its own."""
        answered = 0
        while not self._closing.wait(POLL_SECONDS):
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            free = MAX_TRANSFERS + 1 - len(self._threads)  # one of the threads is this one
            asked = min(self._store.add("asks", 0), answered + free)
            for number in range(answered + 1, asked + 1):
                self._start("weights-transfer", partial(self._answer, number))
            answered = max(answered, asked)

    def _answer(self, number: int) -> None:
        name = ""
        try:
            store = TCPStore(self._host, self._port, is_master=False, timeout=self._timeout)
            name = store.get(_asked(number)).decode()
            weights = self._held.get(name)
            store.set(_answered(number), "gone" if weights is None else "coming")
            if weights is None:
                return
            group = _group(store, number, 0, self._backend, self._timeout)
            for _, tensor in sorted(weights.items()):
                broadcast_tensor(group, tensor.to(_device(self._backend)), self._timeout)
        except (OSError, RuntimeError) as error:  # PyTorch's errors of connections are `RuntimeError`s
            LOG.warning("an engine did not take version %s: %s", name or "that it did not name", error)


def receive(folder: Path, timeout_seconds: float) -> dict[str, torch.Tensor] | None:
    """Return the weights of the policy in `folder` from the trainer's memory; None if the trainer offered none.

    Raises `BroadcastError` if the trainer is gone, has forgotten this version or falls silent, or if the tensors do not
    match the digest in the folder.
    """
    offer = Offer.read(folder)
    if offer is None:
        return None
    timeout = timedelta(seconds=timeout_seconds)
    try:
        # The store's own attempts to connect end only at its timeout, also where no program listens.
        socket.create_connection((offer.host, offer.port), timeout_seconds).close()
        store = TCPStore(offer.host, offer.port, is_master=False, timeout=timeout)
        number = store.add("asks", 1)
        store.set(_asked(number), offer.name)
        if store.get(_answered(number)) != b"coming":
            raise BroadcastError(f"the trainer has forgotten version {offer.name}: newer ones exist")
        weights = offer.empty(_device(offer.backend))
        group = _group(store, number, 1, offer.backend, timeout)
        for tensor in weights.values():
            broadcast_tensor(group, tensor, timeout)
    except (OSError, RuntimeError) as error:
        raise BroadcastError(f"the trainer at {offer.host}:{offer.port} did not send {offer.name}: {error}") from error
    if digest_of(weights) != offer.digest:
        raise BroadcastError(f"the tensors of {offer.name} that arrived do not match their digest")
    return weights


def digest_of(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256, in hex, of names, shapes and bits. Tensors of several data types are exact in float32."""
    dtypes = {tensor.dtype for tensor in weights.values()}
    return weights_digest(weights, dtypes.pop() if len(dtypes) == 1 else torch.float32)


def _group(store: TCPStore, number: int, rank: int, backend: str, timeout: timedelta) -> Any:
    """Return the group of trainer (rank 0) and engine (rank 1) for one transfer.

    Gloo uses the network of the store. Its environment variable is not read, since it may name that of the trainer's
    ranks.
    """
    prefix = PrefixStore(f"transfer/{number}", store)
    if backend == "nccl":
        return dist.ProcessGroupNCCL(prefix, rank, 2, timeout)  # pyright: ignore[reportArgumentType]  (an overload)
    with socket.create_connection((store.host, store.port), timeout.total_seconds()) as connection:
        own_address = connection.getsockname()[0]
    options = dist.ProcessGroupGloo._Options()  # pyright: ignore[reportAttributeAccessIssue]  (stubs lack it)
    options._timeout, options._devices = timeout, [dist.ProcessGroupGloo.create_device(hostname=own_address)]
    return dist.ProcessGroupGloo(prefix, rank, 2, options)


def broadcast_tensor(group: Any, tensor: torch.Tensor, timeout: timedelta) -> None:
    """Send a tensor from rank 0 of the group, and receive it in place on the other rank."""
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor, options.timeout = 0, 0, timeout
    group.broadcast([tensor], options).wait()


def _device(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "nccl" else "cpu")


def _asked(number: int) -> str:
    return f"ask/{number}"


def _answered(number: int) -> str:
    return f"answer/{number}"
