"""Control and filters."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quartet.config import Allocator, Horizon, Sampler
from quartet.errors import ConfigError
from quartet.ledger.rows import FamilyStats, GroupOutcome
from quartet.manager.control.base import ControlContext
from quartet.manager.control.sampler.contrast import MIN_WEIGHT, weight
from quartet.manager.filter.mixed_outcome import MixedOutcome
from quartet.part import NoSettings
from quartet.registry import build, names
from quartet.report.recent import recent_success
from quartet.types import Group, GroupMember, Root, Task
from tests.ledger.samples import finish, manager_of, plan, recipe, trajectory

WINDOW = 32
"""Newest rollouts that a family's statistics count."""


NOTHING = FamilyStats(rollouts=0, successes=0, mean_reward=0.0, mean_turns=0.0, mean_response_tokens=0.0)


def outcomes(mixed: int, groups: int) -> list[GroupOutcome]:
    """Of `groups` groups of eight the newest `mixed` ones had contrast: four successes each."""
    return [
        GroupOutcome(countable=8, successes=4 if age < mixed else 0, mixed=age < mixed, judged_at_step=0, max_turns=10)
        for age in range(groups)
    ]


def context(
    statistics: dict[str, tuple[int, int, float]] | None = None,
    *,
    admitted: int = 0,
    train_step: int = 0,
    family_stats: dict[str, FamilyStats] | None = None,
    **control,
) -> ControlContext:
    """`statistics` are (mixed groups, groups, success rate) by family."""
    stats = {
        family: FamilyStats(
            rollouts=WINDOW,
            successes=round(WINDOW * success_rate),
            mean_reward=0.0,
            mean_turns=1.0,
            mean_response_tokens=1.0,
            outcomes=outcomes(mixed, groups),
        )
        for family, (mixed, groups, success_rate) in (statistics or {}).items()
    }
    return ControlContext(
        recipe=recipe(control=control),
        families=["easy", "even", "hard", "new"],
        statistics=lambda: stats,
        family_statistics=lambda family: (family_stats or {}).get(family) or NOTHING,
        train_step=lambda: train_step,
        groups_admitted=lambda: admitted,
    )


@pytest.mark.parametrize("name", names("sampler"))
def test_a_restarted_sampler_goes_on_where_it_was(name):
    at_once = build(Sampler(name=name), context()).pick(20)
    assert at_once == build(Sampler(name=name), context()).pick(20)
    assert at_once[12:] == build(Sampler(name=name), context(admitted=12)).pick(8)
    assert {task.env for task in at_once} == {"bandit"}


@pytest.mark.parametrize("name", names("sampler"))
def test_only_training_seeds_and_all_of_them(name):
    tasks = build(Sampler(name=name), context(train_seeds_per_family=5)).pick(400)
    assert {task.seed for task in tasks} == set(range(5))
    assert {task.family for task in tasks} == {"easy", "even", "hard", "new"}


def test_uniform_is_uniform():
    seen = Counter(task.family for task in build(Sampler(name="uniform"), context()).pick(4000))
    assert all(abs(count - 1000) < 5 * 1000**0.5 for count in seen.values())


def test_contrast_weighs_families_by_mixed_groups_and_hopes_for_those_that_fail():
    parts = context({"easy": (0, 12, 1.0), "even": (12, 12, 0.5), "hard": (0, 12, 0.0)})
    sampler = build(Sampler(name="contrast"), parts)
    solved, mixed, failing, unseen = sampler.weights()
    assert (solved, mixed) == pytest.approx((0.04 + 4 * (4 / 40) / 16, 0.04 + 14 / 16))
    assert (failing, unseen) == pytest.approx((0.04 + 4 * (36 / 40) / 16, 1.04))
    seen = Counter(task.family for task in sampler.pick(4000))
    assert seen["even"] > 10 * seen["easy"] > 0
    assert seen["even"] > 2 * seen["hard"] > 4 * seen["easy"]


def test_contrast_doubts_a_lucky_group_and_draws_the_expensive_less():
    def stats(groups: int, mixed: int, successes: int, turns: float) -> FamilyStats:
        return FamilyStats(
            rollouts=min(WINDOW, 8 * groups),
            successes=successes,
            mean_reward=0.0,
            mean_turns=turns,
            mean_response_tokens=1.0,
            outcomes=outcomes(mixed, groups),
        )

    lucky, solved = weight(stats(1, 0, 8, 4.0), 4.0), weight(stats(12, 0, WINDOW, 4.0), 4.0)
    assert lucky == pytest.approx(MIN_WEIGHT + 4 * (4 / 16) / 5)
    assert lucky > 3 * solved
    short, typical, long = (weight(stats(12, 6, 16, turns), 4.0) - MIN_WEIGHT for turns in (1.0, 4.0, 12.0))
    assert short == typical == pytest.approx(3 * long)


def test_fixed():
    task = Task(env="bandit", family="easy", seed=0)
    assert build(Allocator(), context(rollouts_per_group=6)).plan(task) == [Root()] * 6
    assert build(Horizon(name="fixed"), context()).max_turns(task) == recipe().rollout.max_turns


@settings(deadline=None)
@given(rewards=st.lists(st.sampled_from([0.0, 0.1, 0.1 + 1e-12, 1.0]), max_size=6))
def test_mixed_outcome(rewards):
    task = Task(env="bandit", family="easy", seed=0)
    members = [
        GroupMember(rollout_id=number, trajectory=trajectory(task, reward=reward))
        for number, reward in enumerate(rewards)
    ]
    group = Group(group_id=1, task=task, members=members)
    assert MixedOutcome(NoSettings()).apply(group) == (group if len(set(rewards)) > 1 else "equal_rewards")


@pytest.mark.parametrize(
    "section",
    [
        {"control": {"sampler": "contrasts"}},
        {"control": {"allocator": "fxed"}},
        {"control": {"horizon": ["fixed", "fixd"]}},
        {"filters": ["mixed_outcomes"]},
    ],
)
def test_an_unknown_name_suggests_the_nearest(ledger, section):
    with pytest.raises(ConfigError, match="Did you mean"), manager_of(recipe(**section), ledger):
        pass


def test_family_statistics_are_a_window_over_training_rollouts(ledger):
    for reward in (1.0, 0.0, 0.0):
        ledger.groups.admit(plan("left", rollouts=1))
        (lease,) = ledger.rollouts.claim("w", 1, 10)
        finish(ledger, lease, reward=reward)
    ledger.groups.admit(plan("right", rollouts=1))
    statistics = ledger.statistics.families(2)
    assert (statistics["left"].rollouts, statistics["left"].success_rate) == (2, 0.0)
    assert ledger.statistics.family("left", 3).success_rate == pytest.approx(1 / 3)
    assert (statistics["left"].groups_admitted, statistics["right"].groups_admitted) == (3, 1)
    assert (statistics["left"].known_successes, statistics["left"].longest_success) == (1, 1)
    assert (statistics["right"].rollouts, statistics["right"].success_rate) == (0, 0.0)
    assert recent_success(ledger, 3) == pytest.approx(1 / 3)
