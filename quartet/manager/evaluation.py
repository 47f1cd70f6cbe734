"""Held-out evaluation: rollouts on seeds that training does not draw."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from quartet.config import Recipe
from quartet.env import turn_limit
from quartet.ledger import Ledger
from quartet.ledger.results import Results, success_rate, total, uncounted_warning
from quartet.telemetry.record import Recorder
from quartet.types import Purpose, RolloutPlan, Task

EVALUATION_MARKER = "evaluation"
"""Empty file that marks the folder of an evaluation. Such a folder may be overwritten, unlike a training run's."""
DURING = "during/"
"""Prefix of the tags of evaluations during training."""


def is_evaluation(run_dir: Path) -> bool:
    """Return whether the folder was written by an evaluation (`quartet eval`), not by a training run."""
    return (run_dir / EVALUATION_MARKER).exists()


def admit_evaluation(
    ledger: Ledger, recipe: Recipe, families: list[str], *, seeds: Sequence[int], temperature: float, tag: str
) -> int:
    """Queue one rollout per family and seed. Return the newest policy version.

    Turn limits are the environment's, at most `rollout.max_turns`. The horizon of training has no effect, so that
    evaluations are comparable. `ledger.evaluations.unfinished(tag)` counts the unfinished rollouts,
    `ledger.evaluations.results(tag)` returns the results. Raises `LedgerError` if the tag was used before.
    """

    def plans() -> Iterator[RolloutPlan]:
        # Ordered by seed, not by family, so that the last rollouts are a mix of short and long tasks.
        for seed in seeds:
            for family in families:
                task = Task(env=recipe.env.name, family=family, seed=seed)
                yield RolloutPlan(
                    task=task,
                    num_rollouts=1,
                    max_turns=turn_limit(recipe.env, family, recipe.rollout.max_turns),
                    purpose=Purpose.EVAL,
                    temperature=temperature,
                    tag=tag,
                )

    return ledger.evaluations.admit(tag, plans())


class PeriodicEvaluation:
    """Periodic evaluation during training, which marks the best policy.

    It uses the recipe's selection seeds, so that no policy is reported on the seeds that selected it. Engines load
    newer policies during the evaluation. Its first rollouts are sampled from the policy that is newest at its start,
    and later rollouts partly from newer policies. Evaluations before and after training use a single policy.
    """

    def __init__(self, recipe: Recipe, ledger: Ledger, recorder: Recorder, families: list[str]) -> None:
        self._recipe, self._ledger, self._recorder, self._families = recipe, ledger, recorder, families
        self._done, self._newest_step = self._evaluated_steps(), 0

    def admit_due(self, train_step: int) -> bool:
        """Queue the evaluation of the newest due train step, unless an evaluation is running.

        Return True if it was queued.
        """
        if train_step < self._newest_step:  # steps were rolled back, and their policies with them
            self._done = self._evaluated_steps()
        self._newest_step = train_step
        every = self._recipe.evaluation.train_steps_per_evaluation
        # The newest due step may be earlier than `train_step`: the tick was late, or another evaluation was running.
        due = train_step - train_step % every if every else 0
        if not due or due in self._done or self._running():
            return False
        tag = f"{DURING}{due}"
        if self._ledger.evaluations.was_admitted(tag):
            tag += f"/v{self._ledger.policies.latest().version}"
        admit_evaluation(
            self._ledger,
            self._recipe,
            self._families,
            seeds=self._recipe.evaluation.selection_seeds,
            temperature=0.0,
            tag=tag,
        )
        self._done.add(due)
        return True

    def _evaluated_steps(self) -> set[int]:
        """Return the train steps that were evaluated, by policies that have not been rolled back."""
        live = {policy.version for policy in self._ledger.policies.live()}
        tags = (tag for tag, version in self._ledger.evaluations.admitted().items() if version in live)
        return {int(tag.removeprefix(DURING).split("/")[0]) for tag in tags if tag.startswith(DURING)}

    def record_finished(self) -> bool:
        """Record the results of the evaluations that have ended; return True if one had ended."""
        changed = False
        for tag, version in self._running().items():
            if not self._ledger.evaluations.has_ended(tag):
                continue
            self._record(tag, version, self._ledger.evaluations.results(tag))
            self._ledger.evaluations.finish(tag)
            changed = True
        return changed

    def _record(self, tag: str, version: int, results: Results) -> None:
        everything, success = total(results), success_rate(results)
        if self._ledger.evaluations.was_cut_off(tag):
            return
        if warning := uncounted_warning(results):
            self._ledger.event("evaluation_uncounted", tag=tag, warning=warning)
        elif success is not None:
            self._ledger.policies.mark_best(version, success)
        if success is not None:
            self._recorder.metric(
                "evaluation",
                tag=tag,
                version=version,
                success=success,
                episodes=everything.episodes,
                uncounted=everything.uncounted,
                families=results,
            )

    def _running(self) -> dict[str, int]:
        running = self._ledger.evaluations.running()
        return {tag: version for tag, version in running.items() if tag.startswith(DURING)}
