"""Settings of control: tasks, rollouts per group, turn limits, and the schedule of groups."""

from typing import Annotated

from pydantic import Field

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import Positive, PositiveFloat, Section
from quartet.types import OnLate, ScheduleName


class Sampler(Choice):
    """Choice of the next task."""

    kind = "sampler"
    name: str = "contrast"
    """Name of the sampler: `quartet parts sampler` lists them."""


class Allocator(Choice):
    """Number of rollouts per group, and the rounds in which they start."""

    kind = "allocator"
    name: str = "fixed"
    """Name of the allocator: `quartet parts allocator` lists them."""


class Horizon(Choice):
    """Turn limit of rollouts."""

    kind = "horizon"


class Control(Section):
    """Choice of tasks, rollouts per group, and turn limits."""

    sampler: Sampler = Sampler()
    """Choice of the next task."""
    allocator: Allocator = Allocator()
    """Number of rollouts per group, at most `rollouts_per_group`."""
    rollouts_per_group: Annotated[int, Field(ge=1)] = 8
    """Rollouts of one task that are compared with each other."""
    horizon: Annotated[SeveralOf[Horizon], Field(min_length=1)] = [Horizon(name="fixed")]
    """Turn limit of a rollout: the lowest limit of these parts, at most `rollout.max_turns`."""
    train_seeds_per_family: Positive = 200
    """Number of training seeds per family. Training draws from these seeds, which begin at 0, so tasks recur. Of an
    environment with a fixed number of tasks, such as a data set, all tasks are used instead."""
    failed_groups_per_task: Positive = 2
    """Quarantine a task after this many groups in a row in which every rollout failed because of the environment
    (`error_env`, `error_reward`, or dead workers) in all its attempts. It gets no further groups until the run is
    resumed; another task takes its place."""
    failed_groups_per_family: Positive = 4
    """Quarantine a whole family after this many such groups in a row, of any of its tasks."""
    statistics_window_rollouts: Positive = 32
    """Number of a family's newest rollouts over which success rates are computed. Only countable rollouts count:
    completed, or truncated at a limit of turns or tokens."""


class Admission(Section):
    """Start of groups, and the bound on the lag of trained tokens."""

    schedule: ScheduleName = "rollout_wise"
    """Schedule of groups and weight updates. `rollout_wise`: a rollout starts as soon as a session is free; engines
    load new weights while requests are in flight. `task_wise`: the same, but a group starts only if there are sessions
    for all its rollouts, or if all sessions are idle. `one_step_off`: one batch is generated while the previous one is
    trained; weights change between batches. The lag is at most 1, except after a roll-back or a rejected policy.
    `batch_synchronous`: generate a batch, train on it, load the new policy, and repeat."""
    max_lag: Annotated[int, Field(ge=0)] = 2
    """Maximum lag, in train steps, of a token that is trained on. Replayed tokens are exempt; `replay.max_lag` bounds
    their lag. 0 is synchronous training. With `rollout_wise` and `task_wise`, up to max_lag + 1 batches of groups are
    in progress at the same time."""
    on_late: OnLate = "mask"
    """Treatment of an unfinished group that the next policy would make too old. `mask` leaves the group's tokens beyond
    `max_lag` out of the loss and its denominator. `wait` delays the next policy until the group has ended (at the
    latest at `group_deadline_seconds`), and masks tokens that are still too old. `drop` drops the group with the reason
    `over_lag`."""
    min_rollouts_per_group: Positive = 2
    """Minimum number of countable members (completed, or truncated at a limit of turns or tokens) of a group that is
    trained."""
    group_deadline_seconds: PositiveFloat = 180.0
    """Time from the first lease of a rollout of the group to the time at which the group closes with its finished
    members. Rollouts that finish later are stored as `late`. If the allocator adds a round, the time starts again with
    the first lease of a rollout of that round."""
