"""Batches that a trainer holds: claimed and not committed, each with a lease that is renewed during the train step."""

import time

from quartet.config import Recipe
from quartet.errors import LeaseLostError
from quartet.ledger import Ledger
from quartet.telemetry.presence import Presence
from quartet.types import Batch


class HeldBatches:
    """Claimed batches of one trainer: at most one in training, and one whose policy is being written.

    Batches are leased to the module's name, which is the same after a restart, so that a new trainer takes over the
    leases of its predecessor.
    """

    def __init__(self, recipe: Recipe, ledger: Ledger, presence: Presence) -> None:
        self._recipe, self._ledger, self._presence = recipe, ledger, presence
        self._batches: list[Batch] = []
        self._renewed = time.monotonic()

    def claim(self, after: Batch | None) -> Batch | None:
        """Claim the next batch, or return None if there is none. `after` is the batch whose policy is being written.

        Raise `LeaseLostError` if the lease of `after` is no longer held.
        """
        admission, train = self._recipe.admission, self._recipe.train
        batch = self._ledger.batches.claim(
            self._presence.module,
            train.groups_per_batch,
            admission.max_lag,
            admission.on_late,
            self._lease_seconds,
            after=after,
        )
        if batch is not None:
            self._batches.append(batch)
        return batch

    def keep(self) -> None:
        """Send a heartbeat, and renew the leases if a quarter of their time is over.

        Raise `LeaseLostError` if a lease is no longer held.
        """
        self._presence.beat()
        if time.monotonic() - self._renewed > self._lease_seconds / 4:
            self.renew()

    def renew(self) -> None:
        """Renew all leases. Raise `LeaseLostError` if one is no longer held."""
        for batch in self._batches:
            self._ledger.batches.renew(batch, self._lease_seconds)
        self._renewed = time.monotonic()

    def remove(self, batch: Batch) -> None:
        """Hold a batch no longer, after its commit or its failure."""
        self._batches = [each for each in self._batches if each is not batch]

    def release(self, error: LeaseLostError) -> None:
        """Release all batches because of `error`, and record each as a failed train step."""
        for batch in self._batches:
            self._ledger.batches.release(batch)
            self._ledger.event(
                "train_step_failed", train_step=batch.train_step, batch_id=batch.batch_id, error=error.what
            )
        self._batches = []

    @property
    def _lease_seconds(self) -> float:
        """Duration of a batch's lease: the longest time for which the supervisor lets a trainer live without a
        heartbeat. With a shorter one, a trainer that waits for a processor would lose its batch and train it again and
        again. A restarted trainer does not wait for the end of the lease."""
        return self._recipe.runtime.longest_silence_seconds
