"""Success of a run's greedy held-out evaluations, with the cost of training up to each."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from quartet.ledger import Ledger
from quartet.ledger.results import success_rate, too_many_uncounted
from quartet.manager.evaluation import DURING
from quartet.report.costs import EvaluationTime, cost_until, evaluation_times, training_began
from quartet.types.plan import GREEDY


class Reached(Struct, frozen=True, kw_only=True):
    """Success of one held-out evaluation (greedy), and the cost of training up to it."""

    tag: str
    """Name of the evaluation; those during training are on selection seeds and have the prefix `during/`."""
    success: float
    train_step: int
    seconds: float
    """Wall seconds since the first training group; the pauses of a resumed run count."""
    rollouts: int
    generated_tokens: int


def held_out_success(ledger: Ledger) -> Iterator[tuple[EvaluationTime, float]]:
    """Yield each finished greedy evaluation with its success rate, oldest first.

    The evaluations before and after training have a greedy and a sampled half; those during training are greedy. One
    that was cut off is left out.
    """
    for evaluation in evaluation_times(ledger):
        during = evaluation.tag.startswith(DURING)
        if not (during or evaluation.tag.endswith(GREEDY)) or not ledger.evaluations.is_whole(evaluation.tag):
            continue
        results = ledger.evaluations.results(evaluation.tag)
        success = success_rate(results)
        if success is not None and not (during and too_many_uncounted(results)):
            yield evaluation, success


def held_out_by_step(ledger: Ledger) -> list[tuple[int, float]]:
    """Return (train step, success rate) of the latest finished greedy evaluation of each step, by train step."""
    return sorted({step: success for _, step, success in _of_live_policies(ledger)}.items())


def learning_curve(ledger: Ledger) -> list[Reached]:
    """Return each greedy held-out evaluation with the cost of training up to it, oldest first."""
    began, points = training_began(ledger), list[Reached]()
    for evaluation, step, success in _of_live_policies(ledger):
        cost = cost_until(ledger, evaluation.created_at)
        points.append(
            Reached(
                tag=evaluation.tag,
                success=success,
                train_step=step,
                seconds=max(0.0, evaluation.created_at - began) if began is not None else 0.0,
                rollouts=cost.rollouts,
                generated_tokens=cost.response_tokens,
            )
        )
    return points


def _of_live_policies(ledger: Ledger) -> Iterator[tuple[EvaluationTime, int, float]]:
    """Yield each evaluation of `held_out_success` with its train step, but for those of policies that were rolled
    back."""
    steps = {policy.version: policy.train_step for policy in ledger.policies.live()}
    for evaluation, success in held_out_success(ledger):
        if evaluation.version in steps:
            yield evaluation, steps[evaluation.version], success


def first_at(curve: Sequence[Reached], target: float) -> Reached | None:
    """Return the first evaluation with at least this success rate; None if there was none."""
    return next((point for point in curve if point.success >= target), None)
