"""Do ARPO's forks need fewer environment steps than independent rollouts, if the last press decides?"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher

FORKS = ("control.rollouts_per_group=4", "rollout.brancher.max_forks_per_group=4")
"""Four rollouts and up to four forks, instead of eight rollouts."""
TREES = ("rollout.brancher=arpo", *FORKS)


class Main(Strategy):
    """Eight independent rollouts against trees, with the credit of plain GRPO or ARPO's hard credit, with forks at
    random, and with forks before uncertain presses only; the last two with hard credit.

    On this suite the hyper-parameters of `locks` let plain GRPO collapse. Of the learning rates 1e-3,
    2e-3, 4e-3 with the entropy bonus 0.05 and 3e-4 with 0.05 and 0.01, and 1e-3 with 0.01, the last was the best for
    plain GRPO on seeds 0 and 1.
    """

    suite = "locks-late"
    budget_tokens = 8_000
    common = ("train.learning_rate=1e-3", "loss.terms.entropy.weight=0.01")
    arms: ClassVar = {
        "independent": [],
        "trees": [*TREES],
        "trees, hard credit": [*TREES, "credit.name=arpo"],
        "random forks": [*TREES, "rollout.brancher.weight_per_nat=0", "credit.name=arpo"],
        "forks at entropy": ["rollout.brancher=entropy", *FORKS, "credit.name=arpo"],
    }
    claims = (
        higher("ARPO: more success per token than independent rollouts", "trees, hard credit", "independent"),
        higher("its forks alone: more success per token than independent rollouts", "trees", "independent"),
        higher("hard credit: more success per token than the credit of GRPO", "trees, hard credit", "trees"),
        higher("entropy: more success per token than random forks", "trees, hard credit", "random forks"),
        higher("forks before uncertain presses only: more than ARPO", "forks at entropy", "trees, hard credit"),
    )
