"""Knobs of what becomes of finished groups: filters and stored successes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from quartet.config.section import Fraction, LocalPath, Names, Positive, Section
from quartet.types import ReplayRule


class Broken(Section):
    """Filter `broken`: rollouts in which the policy hardly acted."""

    max_error_share: Fraction = 0.5
    """A failure with more than this share of turns without a valid action is left out."""


class Overlong(Section):
    """Filter `overlong`: rollouts that were cut off or are too long."""

    max_response_tokens: Annotated[int, Field(ge=0)] = 0
    """Besides truncated rollouts, those with more response tokens are left out; 0 means no such limit."""


class ShortFailures(Section):
    """Filter `short_failures`: rollouts that failed after few turns."""

    min_turns: Positive = 4
    """A rollout without reward that has fewer turns is left out: DART's released storage rule."""


class AccuracyBand(Section):
    """Filter `accuracy_band`: groups that are too easy or too hard."""

    min_success: Fraction = 0.1
    """A group with a lower share of successes is too hard."""
    max_success: Fraction = 0.9
    """A group with a higher share of successes is too easy."""

    @model_validator(mode="after")
    def _consistent(self) -> "AccuracyBand":
        if self.min_success > self.max_success:
            raise ValueError("min_success is above max_success: every group would be dropped")
        return self


class Filter(Section):
    """What is worth training on."""

    names: Names = ["mixed_outcome"]
    """Applied in order to every closed group. `broken`, `overlong` and `short_failures` leave members out,
    `accuracy_band` drops groups that are too easy or too hard, `mixed_outcome` those whose rewards are all equal."""
    broken: Broken = Broken()
    """Knobs of the filter `broken`."""
    overlong: Overlong = Overlong()
    """Knobs of the filter `overlong`."""
    short_failures: ShortFailures = ShortFailures()
    """Knobs of the filter `short_failures`."""
    accuracy_band: AccuracyBand = AccuracyBand()
    """Knobs of the filter `accuracy_band`."""


class Replay(Section):
    """What was seen before and is trained on again."""

    name: str = "none"
    """`none`, or `success_pool`: a stored success joins a group of the same task in which all rollouts failed."""
    rule: ReplayRule = ReplayRule.STORED
    """What its importance weight is taken from: `stored` the recorded log-probs, `recompute` nothing (weight 1)."""
    demonstrations: LocalPath = ""
    """File of successes that are in the pool from the start: chat-format JSONL whose lines name their task, or what
    `quartet ledger export` writes. Format and checks: docs/exchange.md."""
    demonstration_rule: ReplayRule = ReplayRule.RECOMPUTE
    """The rule for those. `stored` only where a Quartet policy sampled them: a chat has no log-probs."""
    mode: Literal["insert", "substitute"] = "insert"
    """`insert` adds it to the group, `substitute` lets it take the place of the first member."""
    choice: Literal["random", "newest"] = "random"
    """Which of the task's stored successes."""
    entries_per_task: Positive = 8
    """Newest successes of a task that are stored."""
    max_replays: Positive = 8
    """An entry joins at most this many groups."""
    max_lag: Annotated[int, Field(ge=0)] | None = None
    """A success with a token more than this many versions old does not join. Unset, a success of any age does: replays
    are exempt from `admission.max_lag`, and only they. Demonstrations have no age."""
