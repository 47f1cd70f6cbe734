"""Alarms about learning metrics and disk space that are out of bounds."""

from collections.abc import Iterator
from statistics import fmean

from quartet.report.alarms.facts import Alarm, Facts

LARGEST_GAP_NATS, LOWEST_ENTROPY_NATS = 0.05, 0.01
LARGEST_MASKED_SHARE, FEWEST_TRAIN_STEPS = 0.1, 5
"""Largest share of masked tokens (of all tokens, of the successes' or of the failures') without an alarm, and the
minimum number of train steps over which this share and the mean entropy are computed."""
_MASKED = ("masked_share", "masked_success_share", "masked_failure_share")


def numerics(facts: Facts) -> Iterator[Alarm]:
    """Report that engine and trainer compute different log-probs, or that the policy hardly explores."""
    # `gap_k1_nats` cannot be used: it includes the policy's change between sampling and training, over up to
    # `admission.max_lag` train steps.
    gap, entropies = facts.canary_gap_nats, [s["entropy_nats"] for s in facts.train_steps if "entropy_nats" in s]
    if gap is not None and gap > LARGEST_GAP_NATS:
        precise = facts.recipe.engine.dtype == "float32"
        yield Alarm(
            kind="gap",
            what=f"engine and trainer, with the same weights, differ by {gap:.3f} nats",
            advice="see 'Engine and trainer disagree' in docs/troubleshooting.md"
            if precise
            else "set engine.dtype = 'float32'; the setting may be changed at --resume",
        )
    # Over several steps, since one batch of easy tasks has little entropy.
    if len(entropies) >= FEWEST_TRAIN_STEPS and (entropy := fmean(entropies)) < LOWEST_ENTROPY_NATS:
        yield Alarm(
            kind="entropy",
            what=f"the policy hardly explores: {entropy:.4f} nats per token",
            advice="lower train.learning_rate, or add the loss term `entropy`",
        )


def masked(facts: Facts) -> Iterator[Alarm]:
    """Report that many tokens are masked because they are too old: a large share of all tokens, of the successes'
    tokens or of the failures' tokens."""
    steps = [step for step in facts.train_steps if all(name in step for name in _MASKED)]
    if len(steps) < FEWEST_TRAIN_STEPS:
        return
    share, of_successes, of_failures = (sum(step[name] for step in steps) / len(steps) for name in _MASKED)
    if max(share, of_successes, of_failures) > LARGEST_MASKED_SHARE:
        yield Alarm(
            kind="masked",
            what=f"{share:.0%} of the response tokens of the newest {len(steps)} train steps were too old and masked "
            f"in the loss: {of_successes:.0%} of the successes', {of_failures:.0%} of the failures'",
            advice="set admission.on_late = 'wait', raise admission.max_lag, or shorten the longest rollouts",
        )


def disk(facts: Facts) -> Iterator[Alarm]:
    """Report that the run will soon stop for lack of disk space."""
    least = facts.recipe.disk.min_free_megabytes
    if facts.free_megabytes < 2 * least:
        yield Alarm(
            kind="disk",
            what=f"{facts.free_megabytes:.0f} MB are free; below {least} MB the run stops",
            advice="free disk space, or lower disk.max_blob_megabytes and disk.keep_policies",
        )
