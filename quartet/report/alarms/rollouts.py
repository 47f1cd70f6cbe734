"""Alarms about the results of rollouts and groups."""

from collections.abc import Iterator, Sequence
from typing import Any

from quartet.config import Recipe
from quartet.env import make_environment
from quartet.errors import ConfigError
from quartet.ledger.quarantine import QUARANTINED
from quartet.report.alarms.facts import Alarm, Facts
from quartet.types import EQUAL_REWARDS, TOO_FEW_COUNTABLE

MANY = 20
"""Minimum number of rollouts or groups for an alarm about a share of them."""
FAILED_ROLLOUTS = 3
"""Number of consecutive rollouts with the same error at which an alarm is raised."""
LONGEST_RESPONSE = 200
"""Maximum number of characters of a response that is quoted as an example."""


def infrastructure(facts: Facts) -> Iterator[Alarm]:
    """Report each status for which the policy is not responsible, if over 5 % of the attempts ended with it."""
    total = sum(facts.statuses.values())
    for status, count in facts.statuses.items():
        if total >= MANY and status in _CURES and count > total / 20:
            yield Alarm(
                kind=status,
                what=f"{count} of the newest {total} attempts ended as {status}, the newest with: "
                f"{facts.errors.get(status, 'no message')}",
                advice=_CURES[status],
            )


def failing(facts: Facts) -> Iterator[Alarm]:
    """Report that the newest rollouts all fail with the same error."""
    repeated, most = facts.repeated, facts.recipe.most_identical_errors
    if repeated is not None and repeated.count >= min(FAILED_ROLLOUTS, most):
        yield Alarm(
            kind="same_error",
            what=f"the newest {repeated.count} rollouts all ended as {repeated.status}: {repeated.error}",
            advice=f"`quartet view` shows rollout {repeated.rollout_id} with the traceback; the run stops at "
            f"{most} in a row (rollout.max_identical_errors)",
        )


def no_action(facts: Facts) -> Iterator[Alarm]:
    """Report that no response of the newest rollouts holds an action that the environment can perform."""
    if (found := facts.no_action) is None:
        return
    expected = _grammar(facts.recipe)
    yield Alarm(
        kind="no_valid_action",
        what=f"none of the newest {found.rollouts} rollouts had a valid action; for example the policy answered "
        f"{found.response[:LONGEST_RESPONSE]!r}, and the environment reported: {found.answer or 'nothing'}",
        advice=(f"the environment expects {expected}; " if expected else "")
        + "teach the form of actions with `quartet sft`: from equal rewards, RL learns nothing",
        level=found.rollouts,
    )


def _grammar(recipe: Recipe) -> str:
    """Return the form of an action; empty if the environment is not installed on this machine."""
    if recipe.rollout.actions.name != "environment":
        return f"the format {recipe.rollout.actions.name!r} (rollout.actions)"
    try:
        return make_environment(recipe.env).grammar
    except ConfigError:
        return ""


_CURES = {
    "error_env": "see logs/env.jsonl; fewer env.sessions or a longer env.step_timeout_seconds help a slow machine",
    "error_engine": "see logs/engine.jsonl; an engine died, timed out or sent an invalid answer",
    "error_reward": "see logs/worker.jsonl: the environment's reward failed",
    "diverged": "the environment showed forked rollouts something else than their parents: check `deterministic` and "
    "`snapshots` in its class, or use no forks",
    "error_agent": "fix the agent loop; the rollout's page of the dashboard shows the traceback",
}


def uncounted(facts: Facts) -> Iterator[Alarm]:
    """Report each evaluation in which episodes have no result: its success rate leaves them out."""
    for event in facts.events:
        if event.kind == "evaluation_uncounted":
            yield Alarm(
                kind=event.kind,
                what=f"evaluation {event.fields['tag']}: {event.fields['warning']}",
                advice="fix the error (see logs/env.jsonl, logs/worker.jsonl) and evaluate again: `quartet eval RUN`",
            )


def cut_off(facts: Facts) -> Iterator[Alarm]:
    """Report that more than half of the rollouts end at the same limit."""
    total = sum(facts.statuses.values())
    for status, setting in _LIMITS.items():
        if total >= MANY and facts.statuses.get(status, 0) > total / 2:
            yield Alarm(
                kind=status, what=f"more than half of the newest rollouts ended as {status}", advice=f"raise {setting}"
            )


_LIMITS = {
    "truncated_turns": "rollout.max_turns, or choose another control.horizon",
    "truncated_tokens": "rollout.max_tokens or engine.max_context_tokens",
    "truncated_time": "rollout.episode_timeout_seconds, or lower env.sessions: the machine is too slow",
}


def dropped(facts: Facts) -> Iterator[Alarm]:
    """Report that over 90 % of the groups are dropped for the same reason."""
    total = sum(facts.verdicts.values())
    for reason, count in facts.verdicts.items():
        if total >= MANY and reason and count > 0.9 * total:
            yield Alarm(
                kind="groups_dropped",
                what=f"{count} of the newest {total} groups were dropped: {reason}",
                advice=remedy(reason),
            )


def quarantined(facts: Facts) -> Iterator[Alarm]:
    """Report groups that were dropped because train steps with them failed repeatedly."""
    records = [event.fields for event in facts.events if event.kind == "batch_quarantined"]
    if records:
        count = sum(len(record["groups"]) for record in records)
        yield Alarm(
            kind="quarantined",
            what=f"{count} groups were quarantined in ten minutes; the last error: {records[0]['error']}",
            advice="their records stay in the ledger: see the event batch_quarantined, and logs/trainer.jsonl for the "
            f"traceback{_suspect(facts.recipe, records)}",
        )


def failing_tasks(facts: Facts) -> Iterator[Alarm]:
    """Report the tasks and families in quarantine."""
    for subject, error in facts.status.quarantined_tasks.items():
        yield Alarm(
            kind="task_quarantined",
            about=subject,
            what=f"{subject} gets no further groups, since all its rollouts fail: {error}",
            advice="fix the environment, or leave the family out of env.families; --resume tries it again. The ledger "
            "has the event task_quarantined, and `quartet view` the records with their tracebacks",
        )


def _suspect(recipe: Recipe, quarantines: Sequence[dict[str, Any]]) -> str:
    """Return the likely cause: training itself if whole batches failed, otherwise a stored success that joined the
    failing groups."""
    if all(len(one["groups"]) == one["of_groups"] for one in quarantines):
        return "; whole batches failed, so training may have diverged: lower train.learning_rate or train.max_grad_norm"
    return "; a stored or imported success that joined them may be the cause" if recipe.replay.name != "none" else ""


def remedy(reason: str) -> str:
    """Return advice against groups being dropped for this reason."""
    return _REMEDIES.get(reason, "relax the one of `filters` that drops them")


_OTHER_TASKS = "use control.sampler = 'contrast', other env.families"
_REMEDIES = {
    EQUAL_REWARDS: f"tasks are too easy or too hard for the policy: {_OTHER_TASKS}, more control.rollouts_per_group, "
    "or a better initial policy by `quartet sft`",
    "too_hard": f"{_OTHER_TASKS}, a lower filters.accuracy_band.min_success, or a better initial policy by "
    "`quartet sft`",
    "too_easy": f"{_OTHER_TASKS}, or a higher filters.accuracy_band.max_success",
    "broken": "the policy rarely gives a valid action: inspect some of its turns; use a better initial policy by "
    "`quartet sft`, or a higher filters.broken.max_error_share",
    "short_failures": "the policy gives up early: use a better initial policy by `quartet sft`, or a lower "
    "filters.short_failures.min_turns",
    "overlong": "raise rollout.max_turns, rollout.max_tokens or filters.overlong.max_response_tokens",
    TOO_FEW_COUNTABLE: "check the statuses of rollouts, or lower admission.min_rollouts_per_group",
    "over_lag": "raise admission.max_lag, or shorten the longest rollouts",
    QUARANTINED: "their train steps fail: see the traceback in logs/trainer.jsonl",
    "damaged": "stored records cannot be read: `quartet ledger check` names them; check the disk",
}
"""Advice, by the reason for which groups are dropped."""
