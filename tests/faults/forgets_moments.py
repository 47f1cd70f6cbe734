"""A trainer with another mistake: started again, it goes on without the optimizer's moments."""

import sys
from pathlib import Path

from msgspec import structs

from quartet.ledger.checkpoints import RecoveryPoint
from quartet.runtime.module import run_module
from quartet.train import trainer


class ForgetsMoments(trainer.Trainer):
    def _restore_optimizer(self, point: RecoveryPoint) -> None:
        super()._restore_optimizer(structs.replace(point, checkpoint=None))


if __name__ == "__main__":
    trainer.Trainer = ForgetsMoments
    sys.exit(run_module(sys.argv[1], Path(sys.argv[2])))
