"""The hub of a network: it forwards packets between nodes, and can cut, delay and lose them."""

import heapq
import itertools
import os
import random
import selectors
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from benchmarks.network.node import Node, on_all

_PACKET_BYTES = 65_536
_DESTINATION = slice(16, 20)
"""Place of the destination in the header of an IPv4 packet."""
_POLL_SECONDS = 0.05


class Hub:
    """Context manager of a thread that forwards packets. The nodes' kernels see real loss: they send again, back off
    and give up by their own rules. No connection is reset."""

    def __init__(self, nodes: Sequence[Node], seed: int = 0) -> None:
        self._nodes, self._by_address = nodes, on_all(nodes)
        self._random, self._closed = random.Random(seed), threading.Event()
        self._cut: set[str] = set()
        self._delays: dict[str, float] = {}
        self._loss = 0.0
        self.lost = 0
        """Number of packets lost so far."""
        self._flying: list[tuple[float, int, Node, bytes]] = []
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)

    @contextmanager
    def cut(self, name: str) -> Iterator[None]:
        """Lose all packets from and to a node inside the block."""
        self._cut = self._cut | {name}
        try:
            yield
        finally:
            self._cut = self._cut - {name}

    @contextmanager
    def bad(self, names: Sequence[str], *, latency_seconds: float, loss: float) -> Iterator[None]:
        """Delay the packets from and to these nodes, so that a round trip takes `latency_seconds` longer, and lose a
        share of them, inside the block."""
        self._delays, self._loss = dict.fromkeys(names, latency_seconds / 2), loss
        try:
            yield
        finally:
            self._delays, self._loss = {}, 0.0

    def _run(self) -> None:
        with selectors.DefaultSelector() as ready:
            for node in self._nodes:
                ready.register(node.wire, selectors.EVENT_READ, node)
            while not self._closed.is_set():
                until_next = self._flying[0][0] - time.monotonic() if self._flying else _POLL_SECONDS
                for key, _ in ready.select(max(0.0, min(until_next, _POLL_SECONDS))):
                    self._take(key.data)
                while self._flying and self._flying[0][0] <= time.monotonic():
                    self._deliver(*heapq.heappop(self._flying)[2:])

    def _take(self, source: Node) -> None:
        """Read a packet of a node, and schedule its delivery unless it is lost."""
        packet = os.read(source.wire, _PACKET_BYTES)
        target = self._by_address.get(packet[_DESTINATION]) if packet[0] >> 4 == 4 else None
        if target is None:
            return  # IPv6's announcements, for instance
        ends = {source.name, target.name}
        slow = max((self._delays.get(name, 0.0) for name in ends), default=0.0)
        if ends & self._cut or (slow and self._random.random() < self._loss):
            self.lost += 1
            return
        heapq.heappush(self._flying, (time.monotonic() + slow, next(self._numbers), target, packet))

    def _deliver(self, target: Node, packet: bytes) -> None:
        with suppress(BlockingIOError):  # its queue is full: the packet is lost, as on any network
            os.write(target.wire, packet)

    def __enter__(self) -> "Hub":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
