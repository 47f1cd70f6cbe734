"""4. Your own rollout strategy: which tasks, how many rollouts, and where a rollout forks.

    python examples/4_own_rollout_strategy.py

Four kinds of parts decide about rollouts: a sampler picks tasks, an allocator says how many rollouts a group gets, in
rounds, a horizon says how many turns they may take, and a brancher is asked after every call whether children begin
there. A child repeats its parent's actions in a session of its own, then samples anew; what parent and child share goes
through the model once in training. This allocator spends its second round where the first one had no success.
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
    """Half of the rollouts first; the other half only for a group without a success."""

    def plan(self, task: Task) -> list[Root]:
        return [Root()] * (self.context.recipe.control.rollouts_per_group // 2)

    def more(self, group: Group) -> Round:
        full = self.context.recipe.control.rollouts_per_group
        solved = any(member.trajectory.success for member in group.members)
        roots = [member for member in group.members if member.trajectory.parent is None]
        return [] if solved or len(roots) >= full else [Root()] * (full - len(roots))


class WhereSurprised(Brancher):
    """One child where the policy sampled something unlikely: what would the likelier answer have led to?"""

    class Settings(Section):
        below: Fraction = 0.3
        """A call forks when the probability of one of its tokens was below this."""

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
