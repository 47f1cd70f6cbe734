"""Explain in one line why a trainer gets no batch: the policy solves all tasks, or the run starves. Starvation comes
with counts of dropped groups and of ended, running and queued rollouts."""

from quartet.ledger import Ledger
from quartet.ledger.rows import SinceCommit
from quartet.types import EQUAL_REWARDS, RolloutState, Status

STARVED = "starved: "
"""Prefix of the stop reason of a run that ended because its trainer got no batch for too long."""

SOLVED = "solved: "
"""Prefix of the stop reason of a run in which no rollout failed any more, so that nothing was left to train on."""
LEAST_SOLVED_GROUPS = 16
"""Minimum number of dropped groups that show that a policy has learned its tasks. Fewer may be those of one easy
family."""


def reason_without_batch(ledger: Ledger, waited_for: str) -> str:
    """Return the stop reason of a run whose trainer got no batch, in one line. `waited_for` describes what was missing,
    and for how long.

    If many groups were dropped, all of them for equal rewards and none with a failure, the policy has learned its
    tasks: a good end, with the evaluation after training. A rollout that ended for another reason than the policy's, or
    had help (guidance, a task that an expert began), a group that hangs while others end, an engine that has not the
    newest policy, or a further trained policy leaves this open: the run starves.
    """
    since = ledger.statistics.since_last_commit()
    reasons = {*since.verdicts} - {""}
    countable = all(Status(status).countable for status in since.statuses)
    settled = countable and not since.overtaken and not ledger.policies.versions_behind() and len(ledger.trained) == 1
    only_solved = since.solved == since.verdicts.get(EQUAL_REWARDS) and reasons == {EQUAL_REWARDS}
    if settled and only_solved and since.solved >= LEAST_SOLVED_GROUPS:
        ended = f"training rollouts ended: {_counts(since.statuses)}"
        dropped = f"all rollouts succeeded in the {since.solved} groups dropped {_since(ledger, since)}"
        return f"{SOLVED}{dropped}; {waited_for}; {ended}"
    return starvation(ledger, waited_for)


def starvation(ledger: Ledger, waited_for: str) -> str:
    """Return the stop reason of a starved run in one line, with counts."""
    since, waiting = ledger.statistics.since_last_commit(), ledger.statistics.queue_sizes()
    judged, kept = sum(since.verdicts.values()), since.verdicts.get("", 0)
    dropped = _counts({reason: count for reason, count in since.verdicts.items() if reason})
    parts = [
        _since(ledger, since),
        f"{judged} groups were judged and {kept} kept" + (f" (dropped: {dropped})" if dropped else ""),
        f"training rollouts ended: {_counts(since.statuses) or 'none'}",
        f"{waiting.rollouts[RolloutState.LEASED]} running, {waiting.rollouts[RolloutState.QUEUED]} queued",
    ]
    if behind := ledger.policies.versions_behind():
        parts.append(f"train steps from the served to the newest policy: {behind}")
    whose = f"policy {ledger.policy}: " if len(ledger.trained) > 1 else ""
    return f"{STARVED}{whose}{waited_for}; {'; '.join(parts)}"


def _since(ledger: Ledger, counts: SinceCommit) -> str:
    step = ledger.batches.train_step()
    if counts.resumed:
        return f"since the resume after train step {step}"
    return f"since train step {step}" if step else "since training began"


def _counts(counted: dict[str, int]) -> str:
    """Format counts, largest first: `49 equal_rewards, 8 broken`."""
    return ", ".join(f"{count} {what}" for what, count in sorted(counted.items(), key=lambda one: -one[1]))
