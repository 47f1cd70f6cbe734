"""A trainer whose rank 1 is killed in the middle of its second train step, unless that has happened before."""

import os
import signal
import sys
from pathlib import Path

from quartet.runtime.module import run_module
from quartet.train.ranks.fsdp import ShardingRanks

STEP = 2


def main(module: str, run_dir: Path) -> None:
    """End this process with the exit code of the module."""
    passes, before_backward = [], ShardingRanks.before_backward
    done = run_dir / "rank_is_lost"

    def dying(ranks: ShardingRanks, *, last: bool) -> None:
        passes.append(last)
        if ranks.rank == 1 and len(passes) == STEP and not done.exists():
            done.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        before_backward(ranks, last=last)

    ShardingRanks.before_backward = dying
    sys.exit(run_module(module, run_dir))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
