"""Does reinforcement learning combine two skills that a policy knows, also for relations that it never combined?"""

from pathlib import Path
from typing import ClassVar

from benchmarks.in_memory import folder_in_memory
from benchmarks.learning_experiments.base import Claim, Figure, Measured, Settings
from benchmarks.locks.variants import grpo_with
from benchmarks.lookups.answers import ANSWER_TOKENS
from benchmarks.lookups.run import ANSWERS_PER_BATCH, imitate, reinforce
from benchmarks.lookups.start import lookups_start
from benchmarks.strategies.base import Strategy, higher
from quartet.env.environment.lookups import FAMILIES

STEPS = 384
"""Number of train steps of imitation. With as many tokens GRPO learns the training questions (seed 0)."""
IMITATION, SUCCESSES, RL = "imitation", "own successes", "RL"


class Main(Strategy):
    """From Atomic to Composite: all arms begin with a policy that knows facts and tables, and train on questions that
    need both, with six pairs of relations. They imitate the expert's answers, reinforce the policy's own right answers
    alone, or learn by GRPO, with as many tokens.

    A held-out question counts as answered if the most likely response is right.
    """

    suite = "lookups"
    budget_tokens = STEPS * ANSWERS_PER_BATCH * ANSWER_TOKENS
    common = (
        *("env.name=lookups", "env.families=['iid']", "control.train_seeds_per_family=4096"),
        *("rollout.max_turns=1", f"rollout.max_tokens={ANSWER_TOKENS}", "engine.max_context_tokens=64"),
        "train.learning_rate=1e-4",  # of GRPO; 3e-4 and more make the policy forget its skills (seed 0)
    )
    # Of the rates 1e-4, 3e-4 and 1e-3, imitation answers most of `zero_shot` with 3e-4 (seed 0).
    arms: ClassVar = {
        IMITATION: ["sft.data=answers", f"sft.steps={STEPS}", "sft.learning_rate=3e-4"],
        SUCCESSES: ["credit.name=reinforce"],
        RL: [],
    }
    figures: ClassVar = {
        **{family: Figure(f"`{family}`, %", 1, 100) for family in FAMILIES},
        "gain": Figure("`zero_shot` gained in the run, points", 1, 100),
        "gap": Figure("`iid` minus `zero_shot`, points", 1, 100),
        "train_steps": Figure("train steps"),
    }
    claims = (
        higher("RL: more `zero_shot` than imitation", RL, IMITATION, "zero_shot"),
        higher("RL: more `composition` than imitation", RL, IMITATION, "composition"),
        Claim(text="RL: `zero_shot` less below `iid`", arm=RL, against=IMITATION, figure="gap", below=0),
        Claim(text="RL adds `zero_shot`", arm=RL, figure="gain", above=0),
        Claim(text="imitation: more than 90 % `iid`", arm=IMITATION, figure="iid", above=0.9),
        higher("RL: more `zero_shot` than own successes", RL, SUCCESSES, "zero_shot"),
    )

    @classmethod
    def start(cls, folder: Path) -> Path:
        return lookups_start(folder)

    def run(self, settings: Settings, seed: int) -> Measured:
        recipe = grpo_with([*settings, f"seed={seed}"])
        if recipe.sft.data:
            return imitate(recipe)
        with folder_in_memory() as folder:
            return reinforce(recipe, folder / "run", self.budget_tokens)
