"""Cuts of one run: each node in turn, for longer than a lease, between good and bad links."""

import random
import time
from collections.abc import Sequence

from benchmarks.cuts.node_run import ROLES, NodeRun
from benchmarks.cuts.recipe import CUT_SECONDS, LATENCY_SECONDS, LOSS, OUTAGE_SECONDS
from benchmarks.network.hub import Hub
from quartet.report.status import StatusReader
from quartet.types.phase import TRAINING

NODES = (*ROLES, "database", "head")
BAD_EVERY = 4
"""One cut in so many happens on links with latency and loss."""
SILENT_SHARE = 0.5
"""Share of a cut for which a module must be silent in the status at its end."""


class Cuts:
    """Cuts of a run, and whether its status explained them."""

    def __init__(self, run: NodeRun, hub: Hub, seed: int) -> None:
        self.run, self._hub, self._random = run, hub, random.Random(seed)
        self.done: list[str] = []
        """Names of the nodes that were cut off, in order."""
        self.unexplained: list[str] = []

    def begin(self) -> None:
        """Start the run, and wait until a module of each role has joined and takes part."""
        self.run.start()
        self.run.until_trained(2)
        self.run.until(lambda: set(self.joined()) >= set(ROLES), what="modules of every role to join")
        self.run.until_trained()

    def many(self, count: int) -> None:
        """Cut off each node in turn, and let the run train between two cuts."""
        order = list(NODES)
        for number in range(count):
            if number % len(NODES) == 0:
                self._random.shuffle(order)
            if number % BAD_EVERY == BAD_EVERY - 1:
                with self._hub.bad(ROLES, latency_seconds=LATENCY_SECONDS, loss=LOSS):
                    self.one(order[number % len(NODES)])
            else:
                self.one(order[number % len(NODES)])

    def one(self, name: str, seconds: float | None = None) -> None:
        """Cut off one node for longer than a lease; the run must then train on."""
        seconds = self._random.uniform(*CUT_SECONDS) if seconds is None else seconds
        with self._hub.cut(name):
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(0.1)
            self._check_status(name, seconds)
        self.done.append(name)
        self.run.until_trained()

    def outage(self) -> None:
        """Cut off the database for longer than any module waits. The run ends, says why, and is resumed."""
        self.one("database", OUTAGE_SECONDS)

    def joined(self) -> dict[str, str]:
        """Return the members that joined from other nodes, by role."""
        members = {role: [one.module for one in self.run.ledger.modules.members(role)] for role in ROLES}
        return {role: max(found, key=_number) for role, found in members.items() if len(found) > 1}

    def _check_status(self, name: str, seconds: float) -> None:
        """Note a cut during which the status shows a module as present that cannot reach the database."""
        status = StatusReader(self.run.run_dir, self.run.ledger).read()
        silent = {module.module: module.silent_seconds for module in status.modules}
        cut_off = self._cut_off(name)
        loud = [module for module in cut_off if silent.get(module, 0.0) < SILENT_SHARE * seconds]
        if loud or (status.phase != TRAINING):
            self.unexplained.append(f"cut {len(self.done)} of {name}: {', '.join(loud)} in phase {status.phase}")

    def _cut_off(self, name: str) -> Sequence[str]:
        """Return the modules that do not reach the database while this node is cut off."""
        if name in ROLES:
            return [module for role, module in self.joined().items() if role == name]
        own = list(self.run.module_names)
        return own if name == "head" else [*own, *self.joined().values()]


def _number(module: str) -> int:
    """Return the number in a module's name; a module that joined later has a larger one."""
    return int(module.partition("-")[2] or 1)
