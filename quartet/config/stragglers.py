"""Knobs of stragglers: rollouts that take much longer than the others of their group or batch."""

from typing import Annotated

from pydantic import Field

from quartet.config.section import Fraction, Positive, Section


class Redundancy(Section):
    """Rule `redundancy`: ROLL's redundant rollouts."""

    extra_rollouts: Positive = 2
    """A group queues this many rollouts more than it needs; the first to finish make it."""


class EarlyStop(Section):
    """Rule `early_stop`: Polar's early stop."""

    min_share: Fraction = 0.5
    """A group of n closes with min(n, ceil(n x this) + 2) countable members, but never with fewer than
    `admission.min_rollouts_per_group`."""


class April(Section):
    """Rule `april`: active partial rollouts. Needs `admission.schedule = "batch_synchronous"` and `max_lag` above 0."""

    over_provision: Annotated[float, Field(ge=1)] = 2.0
    """Groups that are started, per group that is trained."""
    max_recycles: Annotated[int, Field(ge=0)] | None = None
    """A rollout goes back to the queue with what it has at most this often, then it is cancelled. Unset, it is
    `admission.max_lag`: what is recycled more often has tokens that are too old. Recalls before its first token do not
    count."""


class Stragglers(Section):
    """Rollouts that take much longer than the others."""

    rule: str = "continue"
    """What becomes of them: `continue` waits until they end, `redundancy` starts more rollouts than a group needs,
    `early_stop` closes a group before all have ended, `april` starts more groups than a batch needs and goes on with
    the unfinished ones in the next batch. `admission.group_deadline_seconds` bounds all of them."""
    redundancy: Redundancy = Redundancy()
    """Knobs of the rule `redundancy`."""
    early_stop: EarlyStop = EarlyStop()
    """Knobs of the rule `early_stop`."""
    april: April = April()
    """Knobs of the rule `april`."""
