"""Do turn limits that grow during training help in five kinds of small worlds, against fixed short and long ones?"""

from pathlib import Path
from typing import ClassVar

from benchmarks.in_memory import folder_in_memory
from benchmarks.learning_experiments.base import Figure, Measured, Settings
from benchmarks.locks.variants import grpo_with
from benchmarks.strategies.base import Strategy, higher
from benchmarks.worlds.run import GRADES, run
from benchmarks.worlds.start import worlds_start

SHARES = "control.horizon=staged_share"
LONG, SHORT, STAGES = "long", "short", "stages"


class Main(Strategy):
    """AgentGym-RL's three arms: the worlds' turn limits; 0.4 times these limits, which suffices for easy tasks only;
    stages of 0.4, 0.7 and 1 times these limits. Evaluations have the full limits."""

    suite = "worlds"
    budget_tokens = 40_000
    common = (
        *("env.name=worlds", "rollout.max_turns=15", "rollout.max_tokens=8", "engine.max_context_tokens=256"),
        *("control.train_seeds_per_family=64", "train.learning_rate=5e-5", "loss.terms.entropy.weight=0"),
    )
    arms: ClassVar = {
        LONG: ["control.horizon=suite"],
        SHORT: [SHARES, "control.horizon.shares=[0.4]"],
        STAGES: [SHARES, "control.horizon.shares=[0.4,0.7,1.0]", "control.horizon.train_steps=[0,7,14]"],
    }
    figures: ClassVar = {
        "end": Figure("success of held-out episodes at the end, %", 1, 100),
        **{grade: Figure(f"`{grade}`, %", 1, 100) for grade in GRADES},
        "trained_groups": Figure("groups trained"),
        "train_steps": Figure("train steps"),
        "environment_steps": Figure("environment steps"),
    }
    claims = (
        higher("stages: more success at the end than long limits", STAGES, LONG, "end"),
        higher("stages: more success at the end than short limits", STAGES, SHORT, "end"),
        higher("stages: more success in hard tasks than long limits", STAGES, LONG, "hard"),
        higher("stages: more success in hard tasks than short limits", STAGES, SHORT, "hard"),
    )

    @classmethod
    def start(cls, folder: Path) -> Path:
        return worlds_start(folder)

    def run(self, settings: Settings, seed: int) -> Measured:
        recipe = grpo_with([*settings, f"seed={seed}"])
        with folder_in_memory() as folder:
            return run(recipe, folder / "run", self.budget_tokens)
