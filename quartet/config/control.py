"""Settings of control: which tasks, how many rollouts, how many turns, and when a group may start."""

from typing import Annotated

from pydantic import Field

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import Positive, PositiveFloat, Section
from quartet.types import OnLate, ScheduleName


class Sampler(Choice):
    """Which task comes next."""

    kind = "sampler"
    name: str = "contrast"
    """Which one: `quartet parts sampler` lists them."""


class Allocator(Choice):
    """How many rollouts a group gets, and in which rounds."""

    kind = "allocator"
    name: str = "fixed"
    """Which one: `quartet parts allocator` lists them."""


class Horizon(Choice):
    """How many turns a rollout may take."""

    kind = "horizon"


class Control(Section):
    """Which task, how many rollouts, how long."""

    sampler: Sampler = Sampler()
    """Which task comes next."""
    allocator: Allocator = Allocator()
    """How many rollouts a group gets, at most `rollouts_per_group`."""
    rollouts_per_group: Annotated[int, Field(ge=1)] = 8
    """Rollouts of one task that are compared with each other."""
    horizon: Annotated[SeveralOf[Horizon], Field(min_length=1)] = [Horizon(name="fixed")]
    """How many turns a rollout may take: the lowest limit of these parts, and never more than `rollout.max_turns`."""
    train_seeds_per_family: Positive = 200
    """Training draws seeds 0 .. this-1 of every family, so tasks recur."""
    statistics_window_rollouts: Positive = 32
    """Success rates are taken over the last this many countable rollouts of a family."""


class Admission(Section):
    """When work starts, and bounded staleness."""

    schedule: ScheduleName = "rollout_wise"
    """When a group may start and when engines take new weights. `rollout_wise`: a rollout starts as soon as a session
    is free, weights change with requests in flight. `task_wise`: the same, but a group starts only when there are
    sessions for all its rollouts, or when none is at work. `one_step_off`: one batch is generated while the one before
    it is trained, weights change between batches; the lag is 1 at most, but after a roll-back or a refused policy.
    `batch_synchronous`: generate a batch, train it, load its policy, one after the other."""
    max_lag: Annotated[int, Field(ge=0)] = 2
    """No fresh token more than this many versions old is trained on; `replay.max_lag` is the bound of replayed ones. 0
    is synchronous training. With `rollout_wise` and `task_wise` it is the pace too: max_lag + 1 batches on their
    way."""
    on_late: OnLate = "mask"
    """What becomes of a group that outlives its pace: `mask` leaves its too old tokens out of loss and denominator;
    `wait` holds the next policy back until it has ended (at `group_deadline_seconds` at the latest) and masks what is
    too old all the same; `drop` drops it with reason `over_lag`."""
    min_rollouts_per_group: Positive = 2
    """Countable members a group needs to be trained."""
    group_deadline_seconds: PositiveFloat = 180.0
    """An open group closes this long after the first lease of one of its rollouts, with what it has; what arrives later
    is kept as `late`. When the group grows, the time counts from the first lease of one of its new rollouts."""
