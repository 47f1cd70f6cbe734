"""Real processes on one ledger, one of them killed in the middle of its work."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quartet.ledger import Ledger
from quartet.report.totals import run_totals
from tests.ledger.samples import plan

WORKER = """
import sys
from pathlib import Path
from quartet.ledger import Ledger
from tests.ledger.samples import finish

ledger = Ledger.open(Path(sys.argv[1]))
while leases := ledger.rollouts.claim(sys.argv[2], 3, 1000.0):
    for lease in leases:
        finish(ledger, lease, reward=float(lease.index % 2))
        print(lease.rollout_id, flush=True)
"""
GROUPS, ROLLOUTS = 15, 8


def start(run_dir: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(run_dir), name],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_kill_minus_nine_loses_nothing_that_was_appended(tmp_path, url):
    ledger = Ledger.create(tmp_path, url=url)
    ledger.policies.register_initial("p0")
    for _ in range(GROUPS):
        ledger.groups.admit(plan(rollouts=ROLLOUTS))
    victim = start(tmp_path, "victim")
    assert victim.stdout is not None
    acknowledged = [int(victim.stdout.readline())]
    other = start(tmp_path, "other")  # later, lest it takes everything before the victim has begun
    acknowledged += [int(victim.stdout.readline()) for _ in range(19)]
    victim.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in victim.stdout.read().split()]
    victim.wait(30)
    acknowledged += [int(line) for line in other.communicate(timeout=60)[0].split()]
    assert other.returncode == 0
    ledger.rollouts.requeue_all()
    third = start(tmp_path, "third")
    acknowledged += [int(line) for line in third.communicate(timeout=60)[0].split()]
    assert third.returncode == 0

    everything = set(range(1, GROUPS * ROLLOUTS + 1))
    # The victim may have been killed after a commit and before it could say so.
    assert len(everything - set(acknowledged)) <= 1
    assert len(acknowledged) == len(set(acknowledged))
    totals = run_totals(ledger)
    assert totals.train_rollouts == totals.attempts["final"] == GROUPS * ROLLOUTS
    assert (totals.lost, totals.attempts.get("superseded", 0)) == (0, 0)
    for group_id in ledger.groups.closable(1e9):
        ledger.groups.close(group_id)
        assert len(ledger.groups.load(group_id).members) == ROLLOUTS
    ledger.close()


@pytest.mark.slow
def test_writers_take_turns(tmp_path, url):
    """Two processes that write as fast as they can: every rollout is claimed by exactly one of them."""
    ledger = Ledger.create(tmp_path, url=url)
    ledger.policies.register_initial("p0")
    for _ in range(10):
        ledger.groups.admit(plan(rollouts=ROLLOUTS))
    workers = [start(tmp_path, name) for name in "ab"]
    started = time.time()
    for _ in range(20):
        ledger.event("writing_too", seconds=time.time() - started)
    claimed = [int(line) for worker in workers for line in worker.communicate(timeout=60)[0].split()]
    assert sorted(claimed) == list(range(1, 10 * ROLLOUTS + 1))
    ledger.close()
