"""Results of one run for a comparison: success and cost of training, at the end and at each evaluation."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.ledger.results import success_rate, total
from quartet.manager.evaluation import DURING
from quartet.recipe.file import CONFIG, flatten, read_resolved
from quartet.recipe.parts import with_parts
from quartet.report.costs import cost_until, evaluation_times, training_began
from quartet.report.evaluated import after_tag, whole_results
from quartet.report.learning_curve import Reached, first_at, held_out_success, learning_curve
from quartet.types.plan import SAMPLED

NOT_THE_METHOD = ("name", "seed", "runtime", "disk", "ledger", "sft")
"""Settings in which runs of one group may differ."""
_MOST_NAMES = 4


class HeldOutTasks(Struct, frozen=True, kw_only=True):
    """Tasks on which the newest success of a run was measured; success on other tasks is not comparable.

    If the newest evaluation was made during training, these are the selection seeds: held-out seeds by which the best
    policy is chosen. Results are reported on other held-out seeds.
    """

    env: str
    suite: str
    """The environment's own settings, such as a suite or variant of its tasks, as one text."""
    families: tuple[str, ...]
    """Sorted; empty before the first evaluation."""
    first_seed: int
    episodes_per_family: int

    def __str__(self) -> str:
        suite = f" {self.suite}" if self.suite else ""
        families = ", ".join(self.families[:_MOST_NAMES]) + (", …" if len(self.families) > _MOST_NAMES else "")
        seeds = f"{self.episodes_per_family} seeds each from {self.first_seed:,}"
        return f"{self.env}{suite}, {len(self.families)} families ({families}), {seeds}"


class RunResult(Struct, frozen=True, kw_only=True):
    """Results and method of one run."""

    run: str
    """Folder of the run."""
    born: float
    """Unix seconds of the first evaluation or training group. Two folders with the same value hold copies of a run."""
    held_out: HeldOutTasks
    uncounted_share: float
    """Share of the evaluations' rollouts that ended without a result."""
    recipe: str
    seed: int
    settings: dict[str, Any]
    """Settings that belong to the method: dotted name -> value."""
    curve: list[Reached]
    """Greedy held-out evaluations, oldest first."""
    success_sampled: float | None
    """Held-out success after training, sampled at the training temperature."""
    train_seconds: float
    train_steps: int
    rollouts: int
    prompt_tokens: int
    generated_tokens: int
    stop_reason: str
    """Empty for a run that is live or was interrupted."""

    @property
    def success_before(self) -> float | None:
        return self.curve[0].success if self.curve and not self.curve[0].train_step else None

    @property
    def success(self) -> float | None:
        """Greedy success in the newest evaluation, if that was of a trained policy; otherwise None."""
        return self.curve[-1].success if self.curve and self.curve[-1].train_step else None

    def reached(self, target: float) -> Reached | None:
        """Return the first evaluation with at least this success rate; None if there was none."""
        return first_at(self.curve, target)

    def reached_before_training(self, target: float) -> bool:
        """Return whether the initial policy already had this success rate, so that the cost of 0 says nothing about
        training."""
        point = self.reached(target)
        return point is not None and point.train_step == 0


def read_result(run_dir: Path) -> RunResult:
    """Read a run, live or not; write nothing. Raises `LedgerError` or `ConfigError` if it cannot be read."""
    recipe, _ = with_parts(read_resolved(run_dir / CONFIG), run_dir)
    ledger = Ledger.view(run_dir)
    try:
        return _result(run_dir, recipe, ledger)
    finally:
        ledger.close()


def _result(run_dir: Path, recipe: Recipe, ledger: Ledger) -> RunResult:
    total = cost_until(ledger, float("inf"))
    settings = {k: v for k, v in flatten(recipe.model_dump()).items() if k.split(".")[0] not in NOT_THE_METHOD}
    settings["model.path"] = ledger.policies.live()[0].path  # the folder itself, however the recipe names it
    return RunResult(
        run=str(run_dir),
        born=_born(ledger),
        held_out=_held_out_tasks(recipe, ledger),
        uncounted_share=_uncounted_share(ledger),
        recipe=recipe.name,
        seed=recipe.seed,
        settings=settings,
        curve=learning_curve(ledger),
        success_sampled=success_rate(whole_results(ledger, f"{after_tag(ledger)}{SAMPLED}")),
        train_seconds=float(ledger.value("training_seconds", 0.0)),
        train_steps=ledger.batches.train_step(),
        rollouts=total.rollouts,
        prompt_tokens=total.prompt_tokens,
        generated_tokens=total.response_tokens,
        stop_reason=ledger.stop_reason() or "",
    )


def _born(ledger: Ledger) -> float:
    moments = [evaluation.created_at for evaluation in evaluation_times(ledger)]
    began = training_began(ledger)
    if began is not None:
        moments.append(began)
    return min(moments, default=0.0)


def _held_out_tasks(recipe: Recipe, ledger: Ledger) -> HeldOutTasks:
    tags = [evaluation.tag for evaluation, _ in held_out_success(ledger)]
    reported = not tags or not tags[-1].startswith(DURING)
    seeds = recipe.evaluation.reported_seeds if reported else recipe.evaluation.selection_seeds
    return HeldOutTasks(
        env=recipe.env.name,
        suite=recipe.env.variant,
        families=tuple(sorted(ledger.evaluations.results(tags[-1]))) if tags else (),
        first_seed=seeds[0],
        episodes_per_family=len(seeds),
    )


def _uncounted_share(ledger: Ledger) -> float:
    tags = [one.tag for one in evaluation_times(ledger) if not ledger.evaluations.was_cut_off(one.tag)]
    results = [total(ledger.evaluations.results(tag)) for tag in tags]
    return sum(one.uncounted for one in results) / max(1, sum(one.asked for one in results))
