"""Worker without a model: claim a rollout, take a while, append it, and print the outcome. It ends when killed."""

import sys
import time
from pathlib import Path

from msgspec import structs

from benchmarks.crashes.made_up import made_up
from quartet.errors import LeaseLostError
from quartet.ledger import Ledger

LEASE_SECONDS, EPISODE_SECONDS, POLL_SECONDS = 1.5, 0.4, 0.05


def main(run_dir: Path, name: str) -> None:
    ledger = Ledger.open(run_dir)
    print("ready", flush=True)  # noqa: T201
    while True:
        for lease in ledger.rollouts.claim(name, 1, LEASE_SECONDS):
            print("claimed", lease.rollout_id, flush=True)  # noqa: T201
            time.sleep(EPISODE_SECONDS)
            record = structs.replace(made_up(lease.rollout_id, reward=1.0), task=lease.task)
            try:
                outcome = ledger.trajectories.append(lease, record, max_attempts=100)
            except LeaseLostError:
                outcome = "superseded"
            print(outcome, lease.rollout_id, flush=True)  # noqa: T201
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
