"""Alarms about what becomes of rollouts and groups."""

from collections.abc import Iterator

from quartet.config import Recipe
from quartet.env import make_environment
from quartet.errors import ConfigError
from quartet.ledger.quarantine import QUARANTINED
from quartet.manager.filter.base import EQUAL_REWARDS
from quartet.report.alarms.facts import Alarm, Facts

MANY = 20
"""Shares are not judged by fewer rollouts or groups than this."""
FAILED_ROLLOUTS = 3
"""So many with the same error in a row are worth a word."""
LONGEST_RESPONSE = 200
"""Characters of an example."""


def infrastructure(facts: Facts) -> Iterator[Alarm]:
    """Attempts fail, and not by the policy's doing."""
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
    """The newest rollouts all fail with the same error."""
    repeated, most = facts.repeated, facts.recipe.most_identical_errors
    if repeated is not None and repeated.count >= min(FAILED_ROLLOUTS, most):
        yield Alarm(
            kind="same_error",
            what=f"the newest {repeated.count} rollouts all ended as {repeated.status}: {repeated.error}",
            advice=f"`quartet view` shows rollout {repeated.rollout_id} with the traceback; the run stops at "
            f"{most} in a row (rollout.max_identical_errors)",
        )


def no_action(facts: Facts) -> Iterator[Alarm]:
    """The policy says nothing that the environment can do."""
    if (found := facts.no_action) is None:
        return
    expected = _grammar(facts.recipe)
    yield Alarm(
        kind="no_valid_action",
        what=f"none of the newest {found.rollouts} rollouts held one valid action; for example the policy said "
        f"{found.response[:LONGEST_RESPONSE]!r}, and the environment answered: {found.answer or 'nothing'}",
        advice=(f"the environment expects {expected}; " if expected else "")
        + "a policy learns the form of actions by `quartet sft`, not from rewards that are all equal",
        level=found.rollouts,
    )


def _grammar(recipe: Recipe) -> str:
    """Return what an action looks like; empty where the run is read on a machine without its environment."""
    try:
        return make_environment(recipe.env).grammar
    except ConfigError:
        return ""


_CURES = {
    "error_env": "see logs/env.jsonl; fewer env.sessions or a longer env.step_timeout_seconds help a slow machine",
    "error_engine": "see logs/engine.jsonl; an engine died, was silent or answered nonsense",
    "error_reward": "see logs/worker.jsonl: the environment's reward failed",
    "diverged": "the environment does not answer the same actions alike: it is not deterministic, so take no forks",
    "error_agent": "a fault in the agent loop: the dashboard's page of a rollout shows its traceback",
}


def uncounted(facts: Facts) -> Iterator[Alarm]:
    """An evaluation lacks results, so its success rate is that of the episodes that happened to end."""
    for event in facts.events:
        if event.kind == "evaluation_uncounted":
            yield Alarm(
                kind=event.kind,
                what=f"evaluation {event.fields['tag']}: {event.fields['warning']}",
                advice="mend what fails (logs/env.jsonl, logs/worker.jsonl) and evaluate again: `quartet eval RUN`",
            )


def cut_off(facts: Facts) -> Iterator[Alarm]:
    """Most rollouts end at a limit."""
    total = sum(facts.statuses.values())
    for status, knob in _LIMITS.items():
        if total >= MANY and facts.statuses.get(status, 0) > total / 2:
            yield Alarm(
                kind=status, what=f"more than half of the newest rollouts ended as {status}", advice=f"raise {knob}"
            )


_LIMITS = {
    "truncated_turns": "rollout.max_turns, or choose another control.horizon",
    "truncated_tokens": "rollout.max_tokens or engine.max_context_tokens",
    "truncated_time": "rollout.episode_timeout_seconds, or lower env.sessions: the machine is too slow",
}


def dropped(facts: Facts) -> Iterator[Alarm]:
    """Most groups are dropped, all for one reason."""
    total = sum(facts.verdicts.values())
    for reason, count in facts.verdicts.items():
        if total >= MANY and reason and count > 0.9 * total:
            yield Alarm(
                kind="groups_dropped",
                what=f"{count} of the newest {total} groups were dropped: {reason}",
                advice=remedy(reason),
            )


def quarantined(facts: Facts) -> Iterator[Alarm]:
    """Train steps failed again and again with the same groups."""
    records = [event.fields for event in facts.events if event.kind == "batch_quarantined"]
    if records:
        count = sum(len(record["groups"]) for record in records)
        yield Alarm(
            kind="quarantined",
            what=f"{count} groups were given up in ten minutes; the last: {records[0]['error']}",
            advice="their records stay in the ledger: see the event batch_quarantined, and logs/trainer.jsonl for the "
            "traceback; a success that was imported may be the cause",
        )


def remedy(reason: str) -> str:
    """Return what to try when groups are dropped for this reason."""
    return _REMEDIES.get(reason, "see which of the filters drops them, and loosen it")


_OTHER_TASKS = "take control.sampler = 'contrast', other env.families"
_REMEDIES = {
    EQUAL_REWARDS: f"tasks are too easy or too hard for the policy: {_OTHER_TASKS}, more control.rollouts_per_group, "
    "or a better start by `quartet sft`",
    "too_hard": f"{_OTHER_TASKS}, a lower filters.accuracy_band.min_success, or a better start by `quartet sft`",
    "too_easy": f"{_OTHER_TASKS}, or a higher filters.accuracy_band.max_success",
    "broken": "the policy hardly says an action that can be done: look at some of its turns; a better start by "
    "`quartet sft`, or a higher filters.broken.max_error_share",
    "short_failures": "the policy gives up early: a better start by `quartet sft`, or a lower "
    "filters.short_failures.min_turns",
    "overlong": "raise rollout.max_turns, rollout.max_tokens or filters.overlong.max_response_tokens",
    "too_few_countable": "see how rollouts end, or lower admission.min_rollouts_per_group",
    "over_lag": "raise admission.max_lag, or let admission run less far ahead of the trainer",
    QUARANTINED: "train steps with them fail: logs/trainer.jsonl has the traceback",
    "damaged": "stored records cannot be read: `quartet ledger check` names them; look at the disk",
}
"""By the reason of a drop."""
