"""Is the recipe `best` better than plain GRPO and than the recipe `dart` in a real browser?

    python -m benchmarks.strategies --method best_miniwob --seeds 10-12 --json

Runs are those of `quartet train` on `recipes/miniwob`, some ten minutes each on two cores, with Chromium. The modules
work at the same time, so unlike those on `locks` the results depend a little on the machine: a slower trainer makes
older tokens, up to the lag bound.
"""

import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np

from benchmarks.learning_experiments.base import Experiment, Figure, Measured, Settings
from benchmarks.strategies.base import higher
from benchmarks.strategies.best_locks_tuning import FIRST_3
from benchmarks.watched_run import train
from quartet.ledger import Ledger
from quartet.recipe.file import load_recipe, to_toml
from quartet.report.comparison.results import read_result
from quartet.report.costs import cost_until
from quartet.report.learning_curve import Reached

POLL_SECONDS = 1.0
_GRID = 201


class Main(Experiment):
    """Arms are recipes: `dart`, `best`, and `miniwob` as plain GRPO, with tasks drawn uniformly and all advantages at
    their full weight. `best` keeps the sampler and the weight of negative advantages of `miniwob`."""

    common = (
        "train.max_rollouts=1000000",
        "train.target_success=null",
        "train.max_seconds=7200",
        "evaluation.train_steps_per_evaluation=5",
        "evaluation.episodes_per_family=10",
    )
    arms: ClassVar = {
        "grpo": ["control.sampler=uniform", "credit.negative_weight=1.0"],
        "dart": [
            "control.sampler=uniform",
            "control.allocator=dynamic",
            "control.horizon=longest_success",
            "replay.name=success_pool",
            "replay.mode=substitute",
            "replay.max_replays=32",
            "credit.negative_weight=1.0",
        ],
        "best": [
            *FIRST_3,
            "credit.name=ro_recomp",
            "credit.negative_weight=0.5",
            "replay.name=self_imitation",
            'loss.terms=["ppo_clip", {name = "nll", weight = 0.1}]',
        ],
    }
    figures: ClassVar = {
        "area": Figure("success of held-out episodes, mean over the run, %", 1, 100),
        "end": Figure("success of held-out episodes at the end, %", 1, 100),
        "sampled": Figure("the same, sampled, %", 1, 100),
        "train_steps": Figure("train steps"),
        "rollouts": Figure("rollouts"),
    }
    claims = (
        higher("best: more success per token than GRPO", "best", "grpo"),
        higher("best: more success per token than DART's preset", "best", "dart"),
        higher("DART's preset: more success per token than GRPO", "dart", "grpo"),
    )
    budget_tokens = 60_000

    def run(self, settings: Settings, seed: int) -> Measured:
        def stop_at_the_budget(ledger: Ledger) -> None:
            if cost_until(ledger, float("inf")).response_tokens >= self.budget_tokens:
                ledger.request_stop("the budget of tokens is spent")

        with tempfile.TemporaryDirectory() as folder:
            file, run_dir = Path(folder) / "recipe.toml", Path(folder) / "run"
            file.write_text(to_toml(load_recipe(Path("miniwob"), [*settings, f"seed={seed}"])))
            summary = train(file, run_dir, look=stop_at_the_budget, poll_seconds=POLL_SECONDS)
            result = read_result(run_dir)
        if result.generated_tokens < self.budget_tokens:
            raise ValueError(f"the run ended before its budget of tokens was spent: {result.stop_reason}")
        figures = {
            "area": mean_success(result.curve, self.budget_tokens),
            "end": summary["success_after"],
            "sampled": summary["success_after_sampled"],
            "train_steps": summary["train_steps"],
            "rollouts": result.rollouts,
        }
        return Measured(figures=figures, tokens=result.generated_tokens)


def mean_success(curve: list[Reached], budget_tokens: int) -> float:
    """Return the mean of the success over the tokens up to the budget, linear between evaluations."""
    tokens = np.linspace(0, budget_tokens, _GRID)
    found = np.interp(tokens, [point.generated_tokens for point in curve], [point.success for point in curve])
    return float(found.mean())
