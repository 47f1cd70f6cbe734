"""Alarms about train steps that move the policy too far, or hardly at all: one bound per metric."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from statistics import fmean, median

from msgspec import Struct

from quartet.report.alarms.facts import Alarm, Facts

FEWEST_TRAIN_STEPS = 5
"""Minimum number of train steps from which a metric is judged."""


def rise(values: Sequence[float]) -> float:
    """Return the newest value as a multiple of the median of the values before it; 0 without such a median."""
    before = median(values[1:]) if len(values) > FEWEST_TRAIN_STEPS else 0.0
    return values[0] / before if before > 0 else 0.0


class Bound(Struct, frozen=True, kw_only=True):
    """Rule that a metric of the newest train steps, newest first, stays between two bounds."""

    kind: str
    metric: str
    """Name of the metric, without the prefix `train/`."""
    of: Callable[[Sequence[float]], float] = fmean
    """Function that makes one number, which is compared, of the metric's values."""
    least: float = -inf
    most: float = inf
    what: str
    """Text of the alarm, with the number as `{:.0%}` or the like."""
    advice: str

    def __call__(self, facts: Facts) -> Iterator[Alarm]:
        values = [step[self.metric] for step in facts.train_steps if step.get(self.metric) is not None]
        if len(values) < FEWEST_TRAIN_STEPS:
            return
        number = self.of(values)
        if not self.least <= number <= self.most:
            yield Alarm(kind=self.kind, what=self.what.format(number), advice=self.advice)


BOUNDS = (
    Bound(
        kind="effective_samples",
        metric="effective_sample_fraction",
        least=0.5,
        what="the importance weights leave {:.0%} of the tokens as the effective sample",
        advice="lower admission.max_lag, set engine.dtype = 'float32', or lower importance_cap of the loss term",
    ),
    Bound(
        kind="importance_tail",
        metric="importance_max",
        of=median,  # a single outlier is no tail
        most=100.0,
        what="in half of the train steps a token is at least {:.0f} times as probable for the trainer as when sampled",
        advice="compare the sampling settings and the data types of engine and trainer, or lower admission.max_lag",
    ),
    Bound(
        kind="clipped",
        metric="clip_fraction",
        most=0.3,
        what="{:.0%} of the tokens are at the clip bound: a train step moves the policy far",
        advice="lower train.learning_rate, train.epochs or train.minibatches",
    ),
    Bound(
        kind="zero_credit",
        metric="zero_credit_group_share",
        most=0.5,
        what="{:.0%} of the trained groups have no advantage other than 0, and no anchor",
        advice="add the filter 'mixed_outcome', raise control.rollouts_per_group, or use control.sampler = 'contrast'",
    ),
    Bound(
        kind="gradient_spike",
        metric="gradient_norm",
        of=rise,
        most=10.0,
        what="the gradient norm rose to {:.0f} times its median over the train steps before",
        advice="see which of the metrics train/gradient_norm_* rose; lower train.learning_rate or train.max_grad_norm",
    ),
)
