"""Dynamic rollouts, dynamic length, stages, least solved first, VADE: closed forms, and what they must not miss."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from test_control import NOTHING, context

from quartet.config import Allocator, Horizon, Sampler
from quartet.errors import ConfigError
from quartet.ledger.rows import FamilyStats, GroupOutcome
from quartet.ledger.statistics import judged, succeeded
from quartet.manager.control.base import ControlContext
from quartet.manager.control.base import Horizon as HorizonPart
from quartet.manager.control.sampler.vade import VadeSampler, gain
from quartet.manager.tightest_horizon import TightestHorizon
from quartet.registry import build
from quartet.types import MAIN, Status, Task
from tests.ledger.samples import finish, on_sqlite, plan, recipe

TASK = Task(env="bandit", family="easy", seed=0)


def known(successes: int, rollouts: int = 32, **fields) -> dict[str, FamilyStats]:
    return {"easy": replace(NOTHING, rollouts=rollouts, successes=successes, **fields)}


def planned(successes: int, rollouts: int = 32, **settings) -> int:
    parts = context(family_stats=known(successes, rollouts), rollouts_per_group=8)
    return len(build(Allocator.model_validate({"name": "dynamic"} | settings), parts).plan(TASK))


@pytest.mark.parametrize(("successes", "rollouts"), [(0, 8), (19, 8), (20, 7), (24, 5), (28, 3), (29, 2), (32, 2)])
def test_dynamic_rollouts_follow_the_released_formula(successes, rollouts):
    assert planned(successes, min_rollouts=2) == rollouts
    assert planned(successes) == max(4, rollouts)


@pytest.mark.parametrize(("threshold", "rollouts"), [(0.75, 5), (0.76, 8), (0.0, 5)])
def test_the_threshold_itself_gets_fewer_rollouts_as_in_the_released_code(threshold, rollouts):
    """24 of 32 succeed; `task_loader.py` compares with `<`."""
    assert planned(24, min_rollouts=2, success_threshold=threshold) == rollouts
    assert planned(0, min_rollouts=2, success_threshold=threshold) == 8


def test_dynamic_rollouts_of_a_family_that_is_hardly_known():
    assert planned(7, rollouts=7) == 8
    assert planned(8, rollouts=8) == 4


@given(successes=st.integers(0, 32), most=st.integers(2, 16), least=st.integers(2, 16))
def test_dynamic_rollouts_stay_within_the_group(successes, most, least):
    least, most = min(least, most), max(least, most)
    dynamic = Allocator.model_validate({"name": "dynamic", "min_rollouts": least})
    rollouts = len(build(dynamic, context(family_stats=known(successes), rollouts_per_group=most)).plan(TASK))
    assert least <= rollouts <= most


def horizon(name: str, parts: ControlContext, **settings) -> HorizonPart:
    return build(Horizon.model_validate({"name": name} | settings), parts)


def limit(stats: dict[str, FamilyStats], **settings) -> int:
    """Of a recipe whose upper bound is 10 turns."""
    return horizon("longest_success", context(family_stats=stats), **settings).max_turns(TASK)


def test_length_follows_the_longest_success():
    assert limit(known(7, known_successes=7, longest_success=4)) == 10
    assert limit(known(8, known_successes=8, longest_success=4)) == 6
    assert limit(known(8, known_successes=8, longest_success=9)) == 10
    assert limit(known(8, known_successes=8, longest_success=4), factor=1.0) == 5


def test_every_eighth_group_of_a_family_explores():
    limits = [limit(known(8, known_successes=8, longest_success=2, groups_admitted=n)) for n in range(16)]
    assert limits == [3] * 7 + [10] + [3] * 7 + [10]


def test_a_limit_that_cuts_most_rollouts_off_doubles():
    cut = {"known_successes": 8, "longest_success": 2, "tightest_limit": 3}
    assert limit(known(8, truncated=16, **cut)) == 3
    assert limit(known(8, truncated=17, **cut)) == 6
    assert limit(known(8, truncated=17, **{**cut, "tightest_limit": 6})) == 10


def test_a_limit_does_not_double_where_the_upper_bound_does_not_help_either():
    """17 of 32 are cut off; groups below the bound of 10 turns say nothing about it."""
    cut = {"truncated": 17, "known_successes": 8, "longest_success": 2, "tightest_limit": 3}
    assert limit(known(8, **cut, outcomes=[outcome(9, 8), outcome(8, 0, max_turns=3)])) == 6
    assert limit(known(8, **cut, outcomes=[outcome(9, 7), outcome(8, 0, max_turns=3)])) == 3
    assert limit(known(8, **cut | {"truncated": 21}, outcomes=[outcome(9, 7)])) == 6


def test_a_long_variant_is_found_under_a_short_limit(ledger):
    """Most tasks of the family take 3 turns, some take 12. A learner that only ever saw the short ones must see the
    long ones again, by exploring, and then keep a limit that fits them."""
    control = {"rollouts_per_group": 2, "train_seeds_per_family": 8}
    whole = recipe(control=control, rollout={"max_turns": 16})
    parts = context()
    parts = replace(
        parts,
        recipe=whole,
        family_statistics=lambda family: ledger.statistics.family(family, 32),
    )
    longest_success = horizon("longest_success", parts)
    limits = []
    for number in range(60):
        needed = 12 if number % 5 == 4 and number > 25 else 3
        task = Task(env="bandit", family="left", seed=number)
        limits.append(longest_success.max_turns(task))
        ledger.groups.admit(replace(plan("left"), task=task, max_turns=limits[-1]))
        for lease in ledger.rollouts.claim("w", 2, 60):
            solved = limits[-1] >= needed
            ended = Status.COMPLETED if solved else Status.TRUNCATED_TURNS
            finish(ledger, lease, reward=float(solved), turns=min(needed, limits[-1]), status=ended)
    assert limits[8:25] == [16 if (n + 1) % 8 == 0 else 4 for n in range(8, 25)]  # only short successes are known
    first_long = next(n for n in range(26, 60) if n % 5 == 4 and limits[n] == 16)
    assert first_long < 56
    assert set(limits[first_long + 1 :]) == {16}  # 12 * 1.25 + 1


def test_stages_begin_at_their_train_step():
    staged = {"train_steps": [0, 10, 30], "max_turns": [3, 6, 12]}
    limits = [horizon("staged", context(train_step=step), **staged).max_turns(TASK) for step in (0, 9, 10, 29, 30, 99)]
    assert limits == [3, 3, 6, 6, 12, 12]
    for broken in ({"train_steps": [5]}, {"max_turns": [3, 4]}, {"train_steps": [0, 0], "max_turns": [1, 2]}):
        with pytest.raises(ConfigError, match="ascend from 0"):
            recipe(control={"horizon": {"name": "staged"} | broken})


def test_stages_of_a_share_begin_at_their_train_step_and_know_the_limit_of_the_family():
    worlds = recipe(env={"name": "worlds"}, rollout={"max_turns": 12})
    staged = {"train_steps": [0, 10, 20], "shares": [0.05, 0.4, 1.0]}

    def limits(family: str) -> list[int]:
        task = Task(env="worlds", family=family, seed=0)
        parts = [replace(context(train_step=step), recipe=worlds) for step in (0, 9, 10, 20)]
        return [horizon("staged_share", part, **staged).max_turns(task) for part in parts]

    assert limits("house-hard") == [1, 1, 4, 10]
    assert limits("craft-easy") == [1, 1, 5, 12], "the limit of `craft` is 15, but rollout.max_turns is the upper bound"
    for broken in ({"train_steps": [5]}, {"shares": [0.5, 1.0]}, {"train_steps": [0, 0], "shares": [0.5, 1.0]}):
        with pytest.raises(ConfigError, match="ascend from 0"):
            recipe(control={"horizon": {"name": "staged_share"} | broken})


def test_stacked_horizons_give_the_lowest_limit_and_never_more_than_the_bound():
    staged = {"train_steps": [0, 10], "max_turns": [3, 50]}
    parts = [
        [horizon("fixed", context(train_step=step)), horizon("staged", context(train_step=step), **staged)]
        for step in (0, 10)
    ]
    assert [TightestHorizon(stack, 20).max_turns(TASK) for stack in parts] == [3, 10]
    assert TightestHorizon(parts[1][1:], 20).max_turns(TASK) == 20


def test_least_solved_first_and_each_family_once_per_pass():
    parts = context({"easy": (0, 4, 1.0), "even": (0, 4, 0.5), "hard": (0, 4, 0.0)})
    sampler = build(Sampler(name="least_solved"), parts)
    assert [task.family for task in sampler.pick(8)] == ["new", "hard", "even", "easy"] * 2


def test_least_solved_goes_on_within_a_pass():
    parts = context()
    solved = replace(NOTHING, rollouts=4, groups_admitted=5)
    stats = {name: replace(solved, successes=n) for n, name in enumerate(parts.families)}
    stats["new"] = replace(stats["new"], groups_admitted=4)
    sampler = build(Sampler(name="least_solved"), replace(parts, statistics=lambda: stats))
    assert [task.family for task in sampler.pick(3)] == ["new", "easy", "even"]


def test_least_solved_leaves_a_family_in_quarantine_out_and_keeps_its_order():
    parts = replace(
        context({"easy": (0, 4, 1.0), "even": (0, 4, 0.5), "hard": (0, 4, 0.0)}),
        quarantined=lambda task: task.family == "new",
    )
    sampler = build(Sampler(name="least_solved"), parts)
    assert [task.family for task in sampler.pick(6)] == ["hard", "even", "easy"] * 2


def vade(**settings) -> VadeSampler:
    return VadeSampler(VadeSampler.Settings(**settings), context())


def outcome(judged_at_step: int, successes: int, max_turns: int = 10) -> GroupOutcome:
    mixed = 0 < successes < 8
    return GroupOutcome(
        countable=8, successes=successes, mixed=mixed, judged_at_step=judged_at_step, max_turns=max_turns
    )


def test_vade_counts_are_sums_without_decay_and_fade_on_two_scales():
    stats = replace(NOTHING, outcomes=[outcome(10, 8), outcome(8, 2)])
    assert vade(decay_sampled=1.0, decay_step=1.0).counts(stats, 10) == (10.0, 6.0)
    assert vade(decay_sampled=0.5, decay_step=1.0).counts(stats, 10) == (8 + 1.0, 3.0)
    assert vade(decay_sampled=1.0, decay_step=0.5).counts(stats, 10) == (8 + 0.5, 1.5)
    assert vade().counts(None, 10) == (0.0, 0.0)


def test_vade_gain():
    rates = np.linspace(0, 1, 3001)
    gains = [gain(rate, 2.0) for rate in rates]
    assert max(gains) == pytest.approx(4 / 27)
    assert rates[int(np.argmax(gains))] == pytest.approx(1 / 3, abs=1e-3)
    assert gain(0.25, 1.0) == 0.25 * 0.75


def test_vade_prefers_what_is_sometimes_solved():
    half, never, always = ([outcome(n, successes) for n in range(20, 0, -1)] for successes in (3, 0, 8))
    stats = {"easy": always, "even": half, "hard": never}
    by_family = {family: replace(NOTHING, outcomes=newest) for family, newest in stats.items()}
    parts = replace(context(train_step=20), families=list(by_family), statistics=lambda: by_family)
    seen = Counter(task.family for task in VadeSampler(VadeSampler.Settings(), parts).pick(500))
    assert seen["even"] > 490


@on_sqlite
def test_control_queries_use_an_index(ledger):
    """However long the run: SQLite uses a partial index only when the query's words imply its condition."""
    with ledger.read() as connection:
        for query, index in (
            (succeeded("left", MAIN), "successes_by_turns"),
            (judged("left", MAIN), "outcomes_by_family"),
        ):
            compiled = query.compile(connection.engine)
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", tuple(compiled.params.values())).all()
            plan_text = " ".join(row[-1] for row in rows)
            assert index in plan_text and "SCAN" not in plan_text and "TEMP B-TREE" not in plan_text


def test_an_outcome_is_of_the_groups_own_members(ledger):
    """Contrast is measured, whatever the filters or the pool made of the group."""
    for rewards in ((1.0, 0.0), (1.0, 1.0), (0.0, 0.0)):
        group_id = ledger.groups.admit(plan("left"))
        for lease in ledger.rollouts.claim("w", 2, 60):
            finish(ledger, lease, reward=rewards[lease.index])
        ledger.groups.close(group_id)
        ledger.groups.drop(group_id, "too_hard")
    found = ledger.statistics.family("left", 32).outcomes
    assert [(outcome.mixed, outcome.successes) for outcome in found] == [(False, 0), (False, 2), (True, 1)]


def test_cut_off_means_by_the_groups_limit(ledger):
    """`plan` allows 3 turns: a rollout that the environment ended after one says nothing about our limit."""
    for turns, reward in ((3, 0.0), (1, 0.0), (3, 1.0)):
        ledger.groups.admit(plan("left", rollouts=1))
        (lease,) = ledger.rollouts.claim("w", 1, 60)
        finish(ledger, lease, reward=reward, turns=turns, status=Status.TRUNCATED_TURNS)
    stats = ledger.statistics.family("left", 32)
    assert (stats.truncated, stats.tightest_limit) == (1, 3)
