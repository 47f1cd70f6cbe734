"""A trainer with the mistake that the crash tests must find: the ledger's commit comes before the policy's files."""

import sys
from collections.abc import Callable
from pathlib import Path

from quartet.on_progress import no_progress
from quartet.runtime.module import run_module
from quartet.train import trainer
from quartet.train.policy_writer import PolicyWriter


class WritesLate(PolicyWriter):
    late: Callable[[Callable[[], None]], None] | None = None

    @property
    def has_ended(self) -> bool:
        return self.late is not None

    def begin(self, write: Callable[[Callable[[], None]], None]) -> None:
        self.late = write


class CommitsFirst(trainer.Trainer):
    def _commit_publication(self, on_progress: Callable[[], None]) -> None:
        super()._commit_publication(on_progress)
        if self.writer.late:
            self.writer.late(no_progress)
            self.writer.late = None


if __name__ == "__main__":
    trainer.PolicyWriter, trainer.Trainer = WritesLate, CommitsFirst
    sys.exit(run_module(sys.argv[1], Path(sys.argv[2])))
