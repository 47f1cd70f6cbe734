"""Do DARS's further rollouts of hard tasks help, if the tokens for them are missing elsewhere?

All arms have advantages without the standard deviation (`dr_grpo`), for which DARS defines its target.
"""

from typing import ClassVar

from benchmarks.strategies.base import Strategy, higher


class Main(Strategy):
    """Eight rollouts for all groups, against a second round for groups with less than half of them successful."""

    arms: ClassVar = {
        "uniform": [],
        "equal": ["control.allocator=dars"],
        "hard": ["control.allocator=dars", "control.allocator.schedule=hard", "control.allocator.max_rollouts=64"],
        "equal, full batch": ["control.allocator=dars", "train.minibatches=1"],
    }
    common = ("credit.name=dr_grpo",)
    claims = (
        higher("DARS (`equal`): more success per token", "equal", "uniform"),
        higher("DARS (`hard`): more success per token", "hard", "uniform"),
        higher("DARS (`equal`): a larger share of groups is trained", "equal", "uniform", "trained"),
        higher("DARS-B: more success per token than DARS", "equal, full batch", "equal"),
    )
