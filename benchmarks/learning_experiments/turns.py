"""One run on a chain of pages: train until the budget is spent, then evaluate."""

from benchmarks.learning_experiments.base import Measured
from benchmarks.learning_experiments.table import TablePolicy

GROUPS, ROLLOUTS_PER_GROUP = 4, 8
EVALUATION_ROLLOUTS = 256


def learn(policy: TablePolicy, budget_tokens: int, rollouts_per_group: int = ROLLOUTS_PER_GROUP) -> Measured:
    """Train on batches of equally many rollouts, in groups of this size.

    Return the success of training rollouts, `mean`, and of further ones at the end, `end`.
    """
    successes: list[bool] = []
    while policy.tokens < budget_tokens:
        groups = policy.roll_out([0] * (GROUPS * ROLLOUTS_PER_GROUP // rollouts_per_group), rollouts_per_group)
        successes += [member.trajectory.success for group in groups for member in group]
        policy.train(groups)
    figures = {"end": policy.success([0], EVALUATION_ROLLOUTS), "mean": sum(successes) / len(successes)}
    return Measured(figures=figures, tokens=policy.tokens)
