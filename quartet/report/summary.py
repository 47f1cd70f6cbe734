"""`summary.json`: the results of a run, written at its end, for scripts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from quartet.config import Recipe
from quartet.env import family_categories, undemonstrated_families
from quartet.errors import RecordsError
from quartet.files.disk import whole_file
from quartet.ledger import Ledger
from quartet.ledger.results import FamilyResult, Results, success_rate, total
from quartet.report.bias import selection_bias
from quartet.report.evaluated import episode_counts, reported_tags, whole_results
from quartet.report.learning_curve import first_at, learning_curve
from quartet.report.staleness import lag_histogram, over_lag
from quartet.report.standings import PolicyStanding, standings
from quartet.report.totals import run_totals, status_counts
from quartet.types.plan import BLIND

Summary = dict[str, Any]


def build_summary(recipe: Recipe, ledger: Ledger, *, wall_seconds: float, control: Results | None) -> Summary:
    """Return the summary: success on held-out seeds before and after training, speed, lag, and the counts of broken
    promises (`lost`, `trained_twice`). An incomplete evaluation has no success."""
    tags = reported_tags(ledger)
    asked = {name: ledger.evaluations.results(tag, of_all=True) for name, tag in tags.items()}
    whole = {name: whole_results(ledger, tag) for name, tag in tags.items()}
    before, before_sampled, before_blind = (whole[name] for name in ("before", "before_sampled", "before_blind"))
    after, after_sampled, after_blind = (whole[name] for name in ("after", "after_sampled", "after_blind"))
    new = undemonstrated_families(recipe.env)
    curve, target = learning_curve(ledger), recipe.train.target_success
    at_target = None if target is None else first_at(curve, target)
    totals, seconds = run_totals(ledger), float(ledger.value("training_seconds", 0.0))
    per_second = (lambda count: round(count / seconds, 3)) if seconds else (lambda count: None)
    return {
        "name": recipe.name,
        "seed": recipe.seed,
        "stop_reason": ledger.stop_reason() or "",
        "success_before": success_rate(before),
        "success_after": success_rate(after),
        "success_before_sampled": success_rate(before_sampled),
        "success_after_sampled": success_rate(after_sampled),
        "success_before_blind": success_rate(before_blind),
        "success_after_blind": success_rate(after_blind),
        "success_undemonstrated_before": success_rate(before, new) if new else None,
        "success_undemonstrated_after": success_rate(after, new) if new else None,
        "success_control": success_rate(control or {}),
        "success_control_undemonstrated": success_rate(control or {}, new) if new else None,
        "success_by_category": _by_category(
            recipe,
            before=before,
            after=after,
            before_sampled=before_sampled,
            after_sampled=after_sampled,
            control=control or {},
        ),
        "per_task": _per_task(before=before, after=after, control=control or {}, after_blind=after_blind),
        "evaluations": evaluations(asked | {"control": control or {}}),
        "rollouts_to_target": at_target.rollouts if at_target else None,
        "learning_curve": to_builtins(curve),
        "train_seconds": round(seconds, 1),
        "wall_seconds": round(wall_seconds, 1),
        "train_steps": ledger.batches.train_step(),
        "policy_version": ledger.policies.latest().version,
        "policies": {one.name: _policy(ledger.of(one.name), one, recipe) for one in standings(ledger)},
        "rollouts_finished": totals.train_rollouts,
        "rollouts_per_second": per_second(totals.train_rollouts),
        "turns_per_second": per_second(totals.turns),
        "mean_turns": round(totals.turns / totals.train_rollouts, 3) if totals.train_rollouts else None,
        "prompt_tokens_per_rollout": round(totals.prompt_tokens / totals.train_rollouts, 1)
        if totals.train_rollouts
        else None,
        "generated_tokens_per_second": per_second(totals.response_tokens),
        "trained_tokens_per_second": per_second(totals.trained_tokens),
        "trained_token_share": round(totals.trained_tokens / max(1, totals.response_tokens), 3),
        "lag_histogram": {str(lag): count for lag, count in sorted(lag_histogram(ledger).items())},
        "masked_tokens": totals.masked_tokens,
        "held_back_seconds": round(totals.held_back_seconds, 1),
        "statuses": status_counts(ledger),
        "attempts": totals.attempts,
        "dropped_groups": totals.dropped_by_reason,
        "selection_bias": to_builtins(selection_bias(ledger)),
        "replayed": totals.replayed,
        "lost": totals.lost,
        "trained_twice": totals.trained_twice,
        "share_waiting": {row.module: round(row.share_waiting, 3) for row in ledger.modules.all()},
    }


def _policy(ledger: Ledger, standing: PolicyStanding, recipe: Recipe) -> dict[str, Any]:
    """Return the results of one policy; `over_lag` counts the train steps that trained tokens older than allowed."""
    return {
        "trained": standing.trained,
        "train_steps": standing.train_step,
        "version": standing.version,
        "lag_histogram": {str(lag): count for lag, count in lag_histogram(ledger).items()},
        "over_lag": sum(1 for _ in over_lag(ledger, recipe.admission.max_lag)),
    }


def write_summary(
    recipe: Recipe,
    run_dir: Path,
    ledger: Ledger,
    *,
    wall_seconds: float,
    control: Results | None = None,
    stop_reason: str = "",
) -> Summary:
    """Build the summary and write `summary.json` into the run. `stop_reason`, if given, replaces the ledger's."""
    summary = build_summary(recipe, ledger, wall_seconds=wall_seconds, control=control)
    if stop_reason:
        summary["stop_reason"] = stop_reason
    save_summary(run_dir, summary)
    return summary


def save_summary(run_dir: Path, summary: Summary) -> None:
    """Write `summary.json` atomically."""
    with whole_file(run_dir / "summary.json") as fresh:
        fresh.write_text(json.dumps(summary, indent=2) + "\n")


def read_summary(run_dir: Path) -> Summary | None:
    """Return the summary that `save_summary` wrote; None if there is none yet. Raise `RecordsError` if it is
    damaged."""
    path = run_dir / "summary.json"
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise RecordsError(f"{path} is damaged: {error}", "delete it; the ledger has all results") from error


def summary_of_training(run_dir: Path, ledger: Ledger) -> Summary | None:
    """Return the summary of the run's training; None if there is none, or the run has continued since. Raise
    `RecordsError` if it is damaged."""
    written = read_summary(run_dir)
    return written if written and written.get("train_steps") == ledger.batches.train_step() else None


def evaluation_summary(recipe: Recipe, ledger: Ledger, policy: Path) -> Summary:
    """Return the results of `quartet eval`: greedy and sampled success, in total, by category and per task family."""
    greedy, sampled = ledger.evaluations.results("eval/greedy"), ledger.evaluations.results("eval/sampled")
    new = undemonstrated_families(recipe.env)
    return {
        "policy": str(policy),
        "success_greedy": success_rate(greedy),
        "success_sampled": success_rate(sampled),
        "success_blind": success_rate(ledger.evaluations.results(f"eval{BLIND}")),
        "success_undemonstrated": success_rate(greedy, new) if new else None,
        "success_by_category": _by_category(recipe, greedy=greedy, sampled=sampled),
        "seeds": [recipe.evaluation.reported_seeds[0], recipe.evaluation.reported_seeds[-1]],
        "episodes": total(greedy).episodes + total(sampled).episodes,
        "evaluations": evaluations({"greedy": greedy, "sampled": sampled}),
        "per_task": {f: {"greedy": _rate(greedy, f), "sampled": _rate(sampled, f)} for f in sorted(greedy)},
    }


def _per_task(**results: Results) -> dict[str, dict[str, float | None]]:
    families = sorted(results["before"].keys() | results["after"].keys())
    return {family: {name: _rate(one, family) for name, one in results.items()} for family in families}


def _by_category(recipe: Recipe, **results: Results) -> dict[str, dict[str, float | None]]:
    """Return the success rates of each category of the recipe's families."""
    categories = family_categories(recipe.env)
    return {
        category: {name: success_rate(one, families) for name, one in results.items()}
        for category, families in categories.items()
    }


def evaluations(results: Mapping[str, Results]) -> dict[str, dict[str, Any]]:
    """Return `episode_counts` of each evaluation that was admitted."""
    return {name: episode_counts(of_one) for name, of_one in results.items() if of_one}


def _rate(results: Results, family: str) -> float | None:
    return results.get(family, FamilyResult(0, 0)).rate
