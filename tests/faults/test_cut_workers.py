"""Workers whose network is cut for longer than their lease: each rollout is stored once, whoever comes back."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from benchmarks.cuts.ledger_worker import LEASE_SECONDS
from benchmarks.network.hub import Hub
from benchmarks.network.node import Node, why_not
from benchmarks.postgresql_server import network_server
from quartet.ledger import Ledger
from quartet.ledger.database.location import Location, read_location, write_location
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from tests.ledger.samples import plan
from tests.postgresql import needs_postgresql
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    needs_postgresql,
    pytest.mark.skipif(bool(reason := why_not()), reason=f"no network namespaces: {reason}"),
]
WORKERS = ("first", "second")
ROLLOUTS = 8


class Said:
    """What a worker on a node prints, line by line."""

    def __init__(self, node: Node, run_dir: Path) -> None:
        command = [*node.prefix, sys.executable, "-m", "benchmarks.cuts.ledger_worker", str(run_dir), node.name]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(line.strip() for line in self._process.stdout)

    def outcomes(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.lines)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def expiring(ledger: Ledger) -> Iterator[None]:
    """What the data manager does meanwhile: it ends the leases that are over."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(0.1):
            ledger.rollouts.expire(100)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_rollout_is_stored_once_whichever_machine_is_cut_off(tmp_path: Path) -> None:
    with ExitStack() as stack:
        nodes = {name: Node(name, number) for number, name in enumerate((*WORKERS, "database"), start=1)}
        for node in nodes.values():
            stack.callback(node.close)
        hub = stack.enter_context(Hub(list(nodes.values())))
        url, own_url = network_server(nodes["database"].prefix, nodes["database"].address)
        ledger = Ledger.create(tmp_path / "here", url=own_url)
        stack.callback(ledger.close)
        ledger.policies.register_initial("policies/v000000")
        location = read_location(tmp_path / "here")
        assert location is not None
        (tmp_path / "there").mkdir()
        write_location(tmp_path / "there", Location(url, location.schema))
        workers = {name: Said(nodes[name], tmp_path / "there") for name in WORKERS}
        for worker in workers.values():
            stack.callback(worker.end)
        wait_until(lambda: all(worker.lines for worker in workers.values()))
        stack.enter_context(expiring(ledger))
        for number, cut in enumerate(("first", "database", "second"), start=1):
            ledger.groups.admit(plan(rollouts=ROLLOUTS))
            victim = workers["first" if cut == "database" else cut]
            began = victim.outcomes()["claimed"]
            wait_until(lambda victim=victim, began=began: victim.outcomes()["claimed"] > began)
            with hub.cut(cut):
                time.sleep(2 * LEASE_SECONDS)
            with hub.bad(WORKERS, latency_seconds=0.1, loss=0.02):
                wait_until(lambda number=number: outcomes(workers)["appended"] >= number * ROLLOUTS)
        said = outcomes(workers)
    assert said["superseded"] >= 2, "a worker came back after its lease had ended"
    assert said["appended"] == 3 * ROLLOUTS
    check(tmp_path / "here")


def outcomes(workers: dict[str, Said]) -> Counter[str]:
    return sum((worker.outcomes() for worker in workers.values()), Counter[str]())


def check(run_dir: Path) -> None:
    ledger = Ledger.open(run_dir)
    totals = run_totals(ledger)
    assert (totals.attempts["final"], totals.lost) == (3 * ROLLOUTS, 0)
    assert [finding.kind for finding in check_ledger(ledger).findings if finding.kind != "policy_missing"] == []
    ledger.close()
