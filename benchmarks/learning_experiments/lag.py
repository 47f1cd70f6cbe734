"""Do CISPO and decoupled PPO learn from data of a lag of 8, where PPO without a correction does not?

Every batch is trained after eight younger policies. Naive PPO takes the policy that sampled for the old one and clips
around it, so an old token soon gets no gradient. Decoupled PPO clips around the policy at the start of the train step
and multiplies by a bounded importance weight; its variants differ in the weight. CISPO clips the weight alone.
"""

from statistics import fmean
from typing import ClassVar

from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.learning_experiments.many_arms import ManyArms
from benchmarks.learning_experiments.world import WorldPolicy

PROMPTS, ARMS, ROLLOUTS_PER_GROUP = 4, 20, 8
NAIVE = "naive PPO"


def _terms(*settings: str) -> list[str]:
    return ["admission.max_lag=8", *(f"loss.terms=[{{{one}}}]" for one in settings)]


def _more(text: str, arm: str, against: str, bound: float = 0.0) -> Claim:
    return Claim(text=text, arm=arm, against=against, figure="mean", above=bound)


class Main(Experiment):
    """Expected reward after 80 train steps, and its mean over all train steps."""

    arms: ClassVar = {
        NAIVE: _terms("name = 'benchmarks.lag.naive_ppo:NaivePpo', importance = 'none'"),
        "decoupled, truncated": _terms("name = 'ppo_clip', importance = 'truncate', importance_cap = 2.0"),
        "decoupled, masked": _terms("name = 'ppo_clip', importance = 'mask', importance_cap = 5.0"),
        "no weight": _terms("name = 'ppo_clip', importance = 'none'"),
        "interpolated": _terms("name = 'ppo_interpolated', importance = 'truncate', importance_cap = 2.0"),
        "CISPO": _terms("name = 'cispo', importance = 'truncate', importance_cap = 2.0"),
        "no lag": ["loss.terms=[{name = 'ppo_clip', importance = 'none'}]"],
    }
    common: ClassVar = ["train.epochs=8", "train.learning_rate=0.1"]
    figures: ClassVar = {
        "end": Figure("expected reward at the end, % of the optimum", 1, 100),
        "mean": Figure("mean over the run, %", 1, 100),
        "clipped": Figure("tokens at the clip bound of the ratio, %", 1, 100),
    }
    claims = (
        *(
            _more(f"{arm}: more reward than naive PPO", arm, NAIVE)
            for arm in ("decoupled, truncated", "decoupled, masked", "interpolated", "CISPO")
        ),
        _more("the weight helps: truncated above no weight", "decoupled, truncated", "no weight"),
        _more("CISPO: at most 3 points below training without lag", "CISPO", "no lag", -0.03),
    )
    budget_tokens = PROMPTS * ROLLOUTS_PER_GROUP * 80

    def run(self, settings: Settings, seed: int) -> Measured:
        world = ManyArms(PROMPTS, ARMS, seed)
        policy = WorldPolicy(world, settings, seed)
        curve, clipped = [], []
        while policy.tokens < self.budget_tokens:
            policy.train(policy.roll_out(range(PROMPTS), ROLLOUTS_PER_GROUP))
            curve.append(world.optimality(policy))
            clipped.append(policy.metrics.get("clip_fraction", 0.0))  # absent until the first batch is old enough
        figures = {"end": curve[-1], "mean": fmean(curve), "clipped": sum(clipped) / policy.version}
        return Measured(figures=figures, tokens=policy.tokens)
