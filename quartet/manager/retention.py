"""The disk budget of a run: deletion of old policies, records and pictures."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from quartet.config import Disk
from quartet.files.disk import STOPPED_BY_DISK, low_disk
from quartet.ledger import Ledger
from quartet.ledger.held_policy import deletable
from quartet.ledger.policy_folders import policies_root
from quartet.ledger.recovery import checkpoint_progress, recovery_points
from quartet.ledger.serving import SERVED, reported
from quartet.types import Policy

_ROLLOUTS_PER_STEP = 500
"""Number of rollouts whose pictures are deleted in one transaction, so that other writers can use the ledger between
two transactions."""
SECONDS_PER_SWEEP = 2.0
"""Time after which a sweep leaves old records and pictures to the next one. The manager sends no heartbeats meanwhile,
and after its restart it reads the records of the whole run again."""


class Retention:
    """Enforcement of a run's disk budget. Weights outside the run's own folder are never deleted."""

    def __init__(self, disk: Disk, ledger: Ledger, run_dir: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._old_to = clock, 0
        self._disk, self._ledger, self._run_dir = disk, ledger, run_dir
        self._counted_to = 0
        self._loaded_from: dict[str, int] = {}
        """By policy: the newest version at the last sweep without a starting engine. One that has started since may be
        loading this version or a newer one."""
        self.blob_bytes = 0
        """Bytes of the run's blobs, without the beginnings of children."""

    def sweep(self) -> str | None:
        """Delete files beyond the budget; return the reason why the run must stop, or None."""
        for ledger in self._ledger.each():
            self._sweep_policies(ledger)
        self._count_new_blobs()
        self._sweep_old_records()
        self._ledger.journals.drop_finished()
        return self._sweep_blobs() or self._check_free()

    def _sweep_policies(self, ledger: Ledger) -> None:
        """Delete the folders of a policy's versions that are no longer needed."""
        # Rows are read first, so that a policy that is committed from now on is not considered for deletion.
        on_disk, root = ledger.policies.on_disk(), policies_root(self._run_dir, ledger.policy).resolve()
        kept = self._needed_versions(ledger)
        for policy in on_disk:
            folder = self._folder(policy.path)
            if policy.version not in kept and folder.parent == root:
                _delete_unless_held(ledger, policy, folder)

    def _needed_versions(self, ledger: Ledger) -> set[int]:
        """Return the newest `keep_policies` versions that were not rolled back, and all versions in use.

        These versions are in use: the first, the best, versions under evaluation, versions that an engine serves or may
        be loading, the versions of all recovery points, and the version whose checkpoint is being written.
        """
        progress = checkpoint_progress(ledger)  # read first: a checkpoint that becomes whole now is a recovery point
        with ledger.read() as connection:
            served = reported(connection, ledger.policy, SERVED)
        loadable = ledger.policies.loadable()
        live = [policy.version for policy in loadable]
        # The versions are read first: an engine that starts from now on loads the newest of them, or a newer one.
        if not ledger.policies.engine_is_starting():
            self._loaded_from[ledger.policy] = max(live, default=0)
        kept = {0, *live[: self._disk.keep_policies], *ledger.evaluations.running().values()}
        kept |= {policy.version for policy in loadable if progress and policy.train_step == progress.begun}
        kept |= {point.policy.version for point in recovery_points(ledger)}
        settled = ledger.policies.settled_version()
        kept |= {version for version in live if version >= min(settled, self._loaded_from.get(ledger.policy, 0))}
        kept |= {version for version in served if version is not None}
        if best := ledger.policies.best():
            kept.add(best.version)
        return kept

    def _sweep_old_records(self) -> None:
        age, versions = self._disk.max_record_age_seconds, self._disk.max_record_age_versions
        if age is None and versions is None:
            return
        ends = time.monotonic() + SECONDS_PER_SWEEP
        while True:
            freed, old_to = self._ledger.disk.drop_records(
                self._old_to,
                _ROLLOUTS_PER_STEP,
                up_to=self._counted_to,
                created_before=None if age is None else self._clock() - age,
                version_below=None
                if versions is None
                else min(one.policies.version_before(versions) for one in self._ledger.each()),
                checkpoint_step=self._checkpoint_step(),
            )
            self.blob_bytes -= freed
            is_done, self._old_to = old_to == self._old_to, old_to
            if is_done or time.monotonic() >= ends:
                return

    def _checkpoint_step(self) -> int:
        """Return the oldest train step that the run can roll back to; later steps may be trained again."""
        return min(min((point.train_step for point in recovery_points(one)), default=0) for one in self._ledger.each())

    def _folder(self, path: str) -> Path:
        """Return a policy's folder; a relative path is relative to the run."""
        return (self._run_dir / path).resolve()

    def _count_new_blobs(self) -> None:
        """Count the blobs of rows since the last sweep, before any of them is deleted and subtracted."""
        new, self._counted_to = self._ledger.disk.blob_bytes(after=self._counted_to)
        self.blob_bytes += new

    def _sweep_blobs(self) -> str | None:
        budget = self._disk.max_blob_megabytes * 10**6
        self._ledger.disk.drop_beginnings()
        beginnings = self._ledger.disk.beginning_bytes()
        ends = time.monotonic() + SECONDS_PER_SWEEP
        while (total := self.blob_bytes + beginnings) > budget:
            dropped, freed = self._ledger.disk.drop_pictures(_ROLLOUTS_PER_STEP, self._checkpoint_step())
            if not dropped:
                return (
                    f"{STOPPED_BY_DISK}blobs take {total / 1e6:.0f} MB, more than disk.max_blob_megabytes = "
                    f"{self._disk.max_blob_megabytes}, and no pictures are left to delete: raise the limit, or delete "
                    "the files of old records with `quartet ledger gc`, and resume"
                )
            self.blob_bytes -= freed
            if time.monotonic() >= ends:
                return None
        return None

    def _check_free(self) -> str | None:
        low = low_disk(self._run_dir, self._disk.min_free_megabytes)
        return f"{STOPPED_BY_DISK}{low}: free some space and resume" if low else None


def _delete_unless_held(ledger: Ledger, policy: Policy, folder: Path) -> None:
    """Delete a policy's folder, unless a command reads it; a later sweep deletes it then."""
    with deletable(folder) as is_free:
        if is_free:
            # The row is marked first, so that a crash leaves an unused folder, not a row without its folder.
            ledger.policies.mark_deleted(policy.version)
            shutil.rmtree(folder, ignore_errors=True)
