"""One run on a chain of pages: train until the budget is spent, then evaluate."""

from benchmarks.learning_experiments.base import Claim, Figure, Measured
from benchmarks.learning_experiments.world import WorldPolicy

GROUPS, ROLLOUTS_PER_GROUP = 4, 8
EVALUATION_ROLLOUTS = 256
FIGURES = {
    "end": Figure("success at the end, %", 1, 100),
    "mean": Figure("success of training rollouts, %", 1, 100),
}
PPO = ("loss.terms=['ppo_clip', {name = 'value', clip = 1e9}]", "critic.learning_rate=0.05")
"""Loss of the arms with a critic, whose values are not clipped."""


def higher(text: str, arm: str, against: str) -> Claim:
    """Return the claim that more training rollouts of `arm` succeed."""
    return Claim(text=text, arm=arm, against=against, figure="mean", above=0)


def learn(policy: WorldPolicy, budget_tokens: int, rollouts_per_group: int = ROLLOUTS_PER_GROUP) -> Measured:
    """Train on batches of equally many rollouts, in groups of this size.

    Return the success of training rollouts, `mean`, and of further ones at the end, `end`.
    """
    successes: list[bool] = []
    while policy.tokens < budget_tokens:
        groups = policy.roll_out([0] * (GROUPS * ROLLOUTS_PER_GROUP // rollouts_per_group), rollouts_per_group)
        successes += [member.trajectory.success for group in groups for member in group]
        policy.train(groups)
    figures = {"end": policy.success([0], EVALUATION_ROLLOUTS), "mean": sum(successes) / max(1, len(successes))}
    return Measured(figures=figures, tokens=policy.tokens)
