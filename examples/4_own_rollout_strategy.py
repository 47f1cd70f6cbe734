"""4. Your own rollout strategy: which tasks, how many rollouts, and where a rollout forks.

    python examples/4_own_rollout_strategy.py

Four kinds of parts decide about rollouts:

* a sampler picks tasks;
* an allocator sets the number of rollouts of a group, in rounds;
* a horizon sets the maximum number of turns;
* a brancher decides after each call whether the rollout is forked there.

A forked rollout (child) begins in the stored state of its parent and samples its own response there; the shared calls
are trained once, in the parent. The allocator below adds a second round to groups without a success.
"""

from collections.abc import Sequence
from contextlib import closing
from math import log
from pathlib import Path

from quartet.config.section import Fraction, Section
from quartet.ledger import Ledger
from quartet.manager.control.base import RolloutAllocator
from quartet.recipe.file import load_recipe
from quartet.rollout.brancher.base import Brancher
from quartet.runtime.run import run_recipe
from quartet.types import Call, Group, Root, Round, Task

RUN = Path("runs/tutorial-4")
SETTINGS = [
    'control.allocator={name = "4_own_rollout_strategy:SecondChance"}',
    'rollout.brancher={name = "4_own_rollout_strategy:WhereSurprised", below = 0.3}',
    "train.max_train_steps=3",
    "evaluation.before_and_after=false",
]


class SecondChance(RolloutAllocator):
    """Start half of the rollouts; add the other half only to a group without a success."""

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * (self.context.recipe.control.rollouts_per_group // 2)

    def more(self, group: Group) -> Round:
        full = self.context.recipe.control.rollouts_per_group
        solved = any(member.trajectory.success for member in group.members)
        roots = [member for member in group.members if member.trajectory.parent is None]
        return [] if solved or len(roots) >= full else [Root()] * (full - len(roots))


class WhereSurprised(Brancher):
    """Fork one child at each call in which the policy sampled an unlikely token, to try a likelier response."""

    class Settings(Section):
        below: Fraction = 0.3
        """Probability of a token below which its call is forked."""

    settings: Settings

    def forks(self, call: Call, so_far: Sequence[Call]) -> int:
        return int(min(call.own_response.logprobs, default=0.0) < log(self.settings.below))


def main() -> None:
    summary = run_recipe(load_recipe(Path("locks_forks"), SETTINGS), RUN, resume=False, fresh=True, quiet=False)
    with closing(Ledger.view(RUN)) as ledger:
        forked = ledger.forks.count()
    print(f"{summary['rollouts_finished']} rollouts, {forked} of them forked; lost: {summary['lost']}")


if __name__ == "__main__":
    main()
