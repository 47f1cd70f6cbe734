"""Alarms about train steps that move the policy too far, or hardly at all."""

from collections.abc import Iterator
from statistics import median

from quartet.report.alarms.facts import Alarm, Facts

FEWEST_TRAIN_STEPS = 5
"""Minimum number of train steps from which a metric is judged."""
LEAST_EFFECTIVE_FRACTION = 0.5
LARGEST_CLIP_FRACTION, LARGEST_IMPORTANCE = 0.3, 100.0
LARGEST_ZERO_CREDIT_SHARE = 0.5
SPIKE = 10.0
"""Gradient norm of the newest train step, as a multiple of the median of the steps before it."""


def few_effective_samples(facts: Facts) -> Iterator[Alarm]:
    """Report that a few tokens with large importance weights carry the gradient."""
    fraction, largest = _mean(facts, "effective_sample_fraction"), _values(facts, "importance_max")
    if fraction is not None and fraction < LEAST_EFFECTIVE_FRACTION:
        yield Alarm(
            kind="effective_samples",
            what=f"the importance weights leave {fraction:.0%} of the tokens as the effective sample",
            advice="lower admission.max_lag, set engine.dtype = 'float32', or lower importance_cap of the loss term",
        )
    elif largest and median(largest) > LARGEST_IMPORTANCE:  # a single outlier is no tail
        newest = next(ratio for ratio in largest if ratio > LARGEST_IMPORTANCE)
        yield Alarm(
            kind="importance_tail",
            what=f"some tokens are {newest:.0f} times as probable for the trainer as when they were sampled",
            advice="compare the sampling settings and the data types of engine and trainer, or lower admission.max_lag",
        )


def clipped(facts: Facts) -> Iterator[Alarm]:
    """Report that a large share of the tokens is at the clip bound of the ratio."""
    fraction = _mean(facts, "clip_fraction")
    if fraction is not None and fraction > LARGEST_CLIP_FRACTION:
        yield Alarm(
            kind="clipped",
            what=f"{fraction:.0%} of the tokens are at the clip bound: a train step moves the policy far",
            advice="lower train.learning_rate, train.epochs or train.minibatches",
        )


def without_credit(facts: Facts) -> Iterator[Alarm]:
    """Report that most groups of the batches train nothing, because the rewards of their members are equal."""
    share = _mean(facts, "zero_credit_group_share")
    if share is not None and share > LARGEST_ZERO_CREDIT_SHARE:
        yield Alarm(
            kind="zero_credit",
            what=f"{share:.0%} of the trained groups have no advantage other than 0",
            advice="add the filter 'mixed_outcome', raise control.rollouts_per_group, or use control.sampler = "
            "'contrast'",
        )


def gradient_spike(facts: Facts) -> Iterator[Alarm]:
    """Report that the newest gradient is much larger than those of the train steps before it."""
    norms = [step["gradient_norm"] for step in facts.train_steps if step.get("gradient_norm") is not None]
    if len(norms) > FEWEST_TRAIN_STEPS and norms[0] > SPIKE * median(norms[1:]) > 0:
        yield Alarm(
            kind="gradient_spike",
            what=f"the gradient norm rose to {norms[0]:.3g}, from a median of {median(norms[1:]):.3g}",
            advice="see which of the metrics train/gradient_norm_* rose; lower train.learning_rate or "
            "train.max_grad_norm",
        )


def _mean(facts: Facts, name: str) -> float | None:
    """Return the mean of a metric over the newest train steps, None without enough of them."""
    values = _values(facts, name)
    return sum(values) / len(values) if values else None


def _values(facts: Facts, name: str) -> list[float]:
    """Return a metric of the newest train steps, newest first; empty for fewer than `FEWEST_TRAIN_STEPS` values."""
    values = [step[name] for step in facts.train_steps if step.get(name) is not None]
    return values if len(values) >= FEWEST_TRAIN_STEPS else []
