"""A strategy for rollouts on a suite of `locks`: its arms are plain GRPO with a few changed settings."""

from pathlib import Path
from typing import ClassVar

from benchmarks.in_memory import folder_in_memory
from benchmarks.learning_experiments.base import Claim, Experiment, Figure, Measured, Settings
from benchmarks.locks.kept_start import kept_start
from benchmarks.locks.run import Result, run
from benchmarks.locks.start import Form
from benchmarks.locks.statistics import area
from benchmarks.locks.variants import grpo_with
from quartet.config import Recipe


class Strategy(Experiment):
    """The first arm is the baseline, with the hyper-parameters that were tuned for plain GRPO. The first claim is the
    one that decides whether the strategy helps.

    Runs are those of `benchmarks/curation.py`: the real data manager, worker, engine, environments and trainer. A press
    is one environment step and one response of two tokens, so arms with equal tokens have equal environment steps.
    Presses that a forked rollout shares with its parent are sampled and counted once.
    """

    figures: ClassVar = {
        "area": Figure("success at the first try, mean over the run, %", 1, 100),
        "end": Figure("success of held-out episodes at the end, %", 1, 100),
        "trained": Figure("groups trained, %", 0, 100),
        "trained_groups": Figure("groups trained"),
        "environment_steps": Figure("environment steps"),
    }
    suite: ClassVar[str] = "locks"
    """Suite of the environment `locks`."""
    form: ClassVar[Form] = "turns"
    """Prompts that the initial policy reads."""
    budget_tokens = 20_000

    @classmethod
    def start(cls, folder: Path) -> Path:
        """Return the initial policy of all runs in `folder`, made there unless it is there."""
        return kept_start(folder, cls.suite, cls.form)

    def run(self, settings: Settings, seed: int) -> Measured:
        recipe = grpo_with([*settings, f"env.suite={self.suite}", f"seed={seed}"])
        with folder_in_memory() as folder:
            result = self.result(recipe, folder / "run")
        figures = {
            "area": area(result),
            "end": result.success["all"],
            "trained": result.trained_groups / max(1, result.groups),
            "trained_groups": result.trained_groups,
            "environment_steps": result.turns,
        }
        return Measured(figures=figures, tokens=result.tokens)

    def result(self, recipe: Recipe, run_dir: Path) -> Result:
        """Train an arm in `run_dir` until its budget is spent, and evaluate it."""
        return run(recipe, run_dir, self.budget_tokens)


def higher(text: str, arm: str, against: str, figure: str = "area") -> Claim:
    """Return the claim that a figure of `arm` is above that of `against`."""
    return Claim(text=text, arm=arm, against=against, figure=figure, above=0)
