"""A trainer with another mistake: started again, it goes on without the optimizer's moments."""

import sys
from pathlib import Path

from quartet.runtime.module import run_module
from quartet.train import trainer
from quartet.types import Policy


class ForgetsMoments(trainer.Trainer):
    def _restore_optimizer(self, policy: Policy) -> None:
        self._checkpoint = None
        super()._restore_optimizer(policy)


if __name__ == "__main__":
    trainer.Trainer = ForgetsMoments
    sys.exit(run_module(sys.argv[1], Path(sys.argv[2])))
