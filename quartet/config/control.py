"""Knobs of control: which tasks, how many rollouts, how many turns, and when a group may start."""

from typing import Annotated

from pydantic import Field, model_validator

from quartet.config.section import Fraction, Names, Positive, PositiveFloat, Section
from quartet.types import OnLate, ScheduleName


class Vade(Section):
    """Sampler `vade`: per task family, with an independent draw for every group. VADE itself keeps counts per task and
    picks a batch by one draw. The decays are our reading: the paper's page gives the posterior and the information
    gain."""

    exponent: PositiveFloat = 2.0
    """Information gain p (1 - p)^exponent: 2 as published, 1 is the variance of the reward."""
    decay_sampled: Annotated[float, Field(gt=0, le=1)] = 0.9
    """What was known of a family weighs this much less with every further group of it."""
    decay_step: Annotated[float, Field(gt=0, le=1)] = 0.995
    """And this much less with every `train.groups_per_batch` groups of whatever family: the policy moves on."""


class DynamicRollouts(Section):
    """Allocator `dynamic`: DART's dynamic rollout frequency."""

    success_threshold: Fraction = 0.6
    """Below this success rate a group gets all of `rollouts_per_group`."""
    min_rollouts: Annotated[int, Field(ge=2)] = 4
    """From it on, a group gets int(9 / success rate - 7) rollouts, but not fewer than this."""


class LongestSuccess(Section):
    """Horizon `longest_success`: DART's dynamic trajectory length."""

    min_successes: Annotated[int, Field(ge=1, le=64)] = 8
    """Before so many successes of the family are known, its limit is the upper bound."""
    factor: Annotated[float, Field(ge=1)] = 1.25
    """Then it is the longest success times this, plus one turn."""
    groups_per_exploration: Annotated[int, Field(ge=1)] = 8
    """One in this many groups of a family runs at the upper bound as a whole."""
    truncated_share: Fraction = 0.5
    """When more than this share of a family's rollouts is cut off, beyond the share that fails at the upper bound too,
    the limit doubles."""


class Staged(Section):
    """Horizon `staged`: ScalingInter-RL."""

    train_steps: list[Annotated[int, Field(ge=0)]] = [0]
    """Train steps at which a stage begins, ascending; the first is 0."""
    max_turns: list[Positive] = [10]
    """Turn limit of each stage."""

    @model_validator(mode="after")
    def _consistent(self) -> "Staged":
        steps = self.train_steps
        if len(steps) != len(self.max_turns) or steps[:1] != [0] or steps != sorted(set(steps)):
            raise ValueError("one max_turns per train_steps, which ascend from 0")
        return self


class Control(Section):
    """Which task, how many rollouts, how long."""

    sampler: str = "contrast"
    """Which task comes next: `uniform`; `contrast` (families in proportion to the chance that a group has mixed
    outcomes; those that take more turns than others less); `least_solved` (all families in turn, the least solved
    first); `vade` (Thompson sampling of a family's information gain, one draw per group)."""
    allocator: str = "fixed"
    """How many rollouts a group gets: `fixed` is `rollouts_per_group`, `dynamic` fewer of what mostly succeeds."""
    rollouts_per_group: Annotated[int, Field(ge=1)] = 8
    """Rollouts of one task that are compared with each other."""
    horizon: Annotated[Names, Field(min_length=1)] = ["fixed"]
    """How many turns a rollout gets; of several, the lowest: `fixed` is `rollout.max_turns`, `suite` what the
    environment's suite states, `longest_success` follows the successes of the family, `staged` grows with training."""
    train_seeds_per_family: Positive = 200
    """Training draws seeds 0 .. this-1 of every family, so tasks recur."""
    statistics_window_rollouts: Positive = 32
    """Success rates are taken over the last this many countable rollouts of a family."""
    vade: Vade = Vade()
    """Knobs of the sampler `vade`."""
    dynamic_rollouts: DynamicRollouts = DynamicRollouts()
    """Knobs of the allocator `dynamic`."""
    longest_success: LongestSuccess = LongestSuccess()
    """Knobs of the horizon `longest_success`."""
    staged: Staged = Staged()
    """Knobs of the horizon `staged`."""


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
    is kept as `late`."""
