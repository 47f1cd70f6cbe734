"""Can the dual clip replace the KL term?

RIFT bounds the loss of a token with a negative advantage whose ratio is large, and has no KL term. Such ratios are
frequent if data is old and every batch is trained several times. The claim is refuted if the dual clip is worse than
the KL term, or does not lower the gradient's norm.
"""

from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.many_arms import ManyArms
from benchmarks.learning_experiments.world import WorldPolicy

PROMPTS, ARMS, ROLLOUTS_PER_GROUP = 4, 20, 8
OFF = 1e9


def _terms(dual_clip: float, kl: float = 0.0) -> list[str]:
    terms = [f"{{name = 'benchmarks.lag.naive_ppo:NaivePpo', importance = 'none', dual_clip = {dual_clip}}}"]
    terms += [f"{{name = 'kl', weight = {kl}}}"] if kl else []
    return [f"loss.terms=[{', '.join(terms)}]"]


class Main(Experiment):
    """Expected reward and gradient norm at a lag of 8, without gradient clipping, with and without each bound."""

    arms: ClassVar = {
        "neither": _terms(OFF),
        "KL 0.01": _terms(OFF, 0.01),
        "KL 0.04": _terms(OFF, 0.04),
        "dual clip 3": _terms(3.0),
    }
    common: ClassVar = ["admission.max_lag=8", "train.epochs=4", "train.learning_rate=0.1", "train.max_grad_norm=1e9"]
    figures: ClassVar = {
        "end": Figure("expected reward at the end, % of the optimum", 1, 100),
        "mean": Figure("mean over the run, %", 1, 100),
        "norm": Figure("largest norm of a gradient", 2),
    }
    claims = (
        Claim(
            text="dual clip: higher reward than neither", arm="dual clip 3", against="neither", figure="end", above=0
        ),
        Claim(
            text="dual clip: higher reward than KL 0.04", arm="dual clip 3", against="KL 0.04", figure="end", above=0
        ),
        Claim(
            text="dual clip: higher reward than KL 0.01", arm="dual clip 3", against="KL 0.01", figure="end", above=0
        ),
        Claim(
            text="dual clip: smaller largest gradient than neither",
            arm="dual clip 3",
            against="neither",
            figure="norm",
            below=0,
        ),
    )
    budget_tokens = PROMPTS * ROLLOUTS_PER_GROUP * 60

    def run(self, settings: Settings, seed: int) -> Measured:
        world = ManyArms(PROMPTS, ARMS, seed)
        policy = WorldPolicy(world, settings, seed)
        curve, norm = [], 0.0
        while policy.tokens < self.budget_tokens:
            policy.train(policy.roll_out(range(PROMPTS), ROLLOUTS_PER_GROUP))
            norm = max(norm, policy.metrics.get("gradient_norm", 0.0))
            curve.append(world.optimality(policy))
        figures = {"end": curve[-1], "mean": sum(curve) / len(curve), "norm": norm}
        return Measured(figures=figures, tokens=policy.tokens)
