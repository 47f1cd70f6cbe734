"""A run whose groups are made up, for a trainer process that is killed or wrong on purpose."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.crashes.made_up import TASK, made_up
from quartet.config import Recipe
from quartet.crash_points import VARIABLE
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.telemetry.receipts import WorkerReceipts
from quartet.types import ReplayRule, RolloutPlan

REPOSITORY = Path(__file__).parents[2]
TRAINER = "quartet.runtime.module"


class FedRun:
    """A run directory with an initial policy and groups that wait for a trainer."""

    def __init__(self, run_dir: Path, recipe: Recipe) -> None:
        self.run_dir = run_dir
        self.ledger = Ledger.create(run_dir, **recipe.ledger.model_dump())
        self.ledger.policies.register_initial(recipe.model.path)
        self._receipts = WorkerReceipts(run_dir, enabled=True)
        (run_dir / "config.toml").write_text(to_toml(recipe))
        self._points = run_dir / "points"
        self._points.mkdir()

    def feed(self, groups: int, replayed: Mapping[int, ReplayRule] | None = None) -> None:
        """Groups of two, one of which succeeded; their tokens say which group it is. `replayed` joins each of them."""
        for _ in range(groups):
            group_id = self.ledger.groups.admit(RolloutPlan(task=TASK, num_rollouts=2, max_turns=1))
            leases = self.ledger.rollouts.claim("worker", 2, 60)
            for lease in leases:
                trajectory = made_up(10 * group_id + lease.index, reward=float(lease.index))
                self._receipts.appending(lease, trajectory)
                self._receipts.appended(lease, self.ledger.trajectories.append(lease, trajectory, 3))
            self.ledger.groups.close(group_id)
            self.ledger.groups.make_trainable(group_id, [lease.rollout_id for lease in leases], 2, replayed=replayed)

    def train(self, module: str = TRAINER, *, killed_at: str | None = None) -> int:
        """Let a trainer process work to its end, or until it dies at a crash point; returns its exit code."""
        if killed_at:
            (self._points / killed_at).touch()
        environment = os.environ | {VARIABLE: str(self._points), "OMP_NUM_THREADS": "1"}
        arguments = [sys.executable, "-m", module, "trainer", str(self.run_dir)]
        finished = subprocess.run(
            arguments, env=environment, cwd=REPOSITORY, capture_output=True, timeout=120, check=False
        )
        return finished.returncode
