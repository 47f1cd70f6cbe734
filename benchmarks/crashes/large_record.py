"""Worker that appends one rollout whose record is too large for a row. Exits with 2 if no rollout is queued."""

import os
import sys
from pathlib import Path

from msgspec import structs

from benchmarks.crashes.made_up import made_up
from benchmarks.crashes.recipe import LEASE_SECONDS
from quartet.errors import LeaseLostError
from quartet.ledger import Ledger
from quartet.ledger.blobs import LARGEST_IN_DATABASE_BYTES
from quartet.telemetry.receipts import WorkerReceipts
from quartet.types import Observation, Picture, RolloutLease, Trajectory, Turn


def large(lease: RolloutLease, version: int) -> Trajectory:
    """Return a trajectory with a picture of noise, which cannot be compressed."""
    noise = os.urandom(2 * LARGEST_IN_DATABASE_BYTES)
    seen = Observation(goal="Pull.", text="button left [1]", pictures=[Picture(data=noise)])
    turn = Turn(observation=seen, call_index=0, response="click left [1]")
    record = made_up(lease.rollout_id, reward=float(lease.index % 2), version=version, policy=lease.policy)
    return structs.replace(record, task=lease.task, turns=[turn])


def main(run_dir: Path) -> int:
    ledger, receipts = Ledger.open(run_dir), WorkerReceipts(run_dir, enabled=True)
    leases = ledger.rollouts.claim(f"large-{os.getpid()}", 1, LEASE_SECONDS)
    for lease in leases:
        trajectory = large(lease, ledger.policies.latest().version)
        receipts.appending(lease, trajectory)
        try:
            receipts.appended(lease, ledger.trajectories.append(lease, trajectory, 3))
        except LeaseLostError:
            receipts.appended(lease, "superseded")
    return 0 if leases else 2


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
