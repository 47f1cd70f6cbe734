"""The curriculum by sub-goals: one action left at first, one more whenever a family has learned."""

import pytest
from msgspec.structs import replace
from test_control import NOTHING, context

from quartet.config import Sampler
from quartet.errors import ConfigError
from quartet.ledger.rows import FamilyStats, GroupOutcome
from quartet.manager.control.sampler.subgoals import SubgoalsSampler
from quartet.registry import build
from quartet.telemetry.series import read_series
from quartet.types import ACTIONS_LEFT, GENERATED, Task
from tests.ledger.samples import finish, manager_of, recipe

FORMS = {"name": "miniwob", "families": ["login-user"]}
LOCKS = {"name": "locks", "families": ["chain"], "sessions": 4, "screenshots": False}


def sampler(**settings: object) -> SubgoalsSampler:
    made = build(Sampler(name="subgoals", **settings), context())
    assert isinstance(made, SubgoalsSampler)
    return made


def stats(*groups: tuple[int, int]) -> FamilyStats:
    """Statistics of groups of eight, newest first: actions left (0 for a whole task), and successes."""
    outcomes = [
        GroupOutcome(
            countable=8,
            successes=successes,
            mixed=0 < successes < 8,
            judged_at_step=0,
            max_turns=9,
            params={ACTIONS_LEFT: left} if left else {},
        )
        for left, successes in groups
    ]
    return replace(NOTHING, rollouts=8 * len(groups), outcomes=outcomes)


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ([], 1),
        ([(1, 8)], 1),
        ([(1, 8), (1, 8)], 2),
        ([(1, 5), (1, 2)], 1),
        ([(1, 4), (1, 3), (1, 8)], 1),
        ([(1, 4), (1, 8), (1, 8)], 2),
        ([(2, 0), (2, 0), (1, 8), (1, 8)], 2),
        ([(0, 0), (0, 3), (2, 6), (0, 8), (2, 6)], 3),
        ([(1, 0), (0, 8), (0, 8), (1, 0), (0, 4), (0, 8)], 4),
        ([(1, 0), (0, 8), (0, 8), (1, 0), (0, 0), (0, 4), (0, 8)], 1),
        ([(0, 8), (0, 8), (0, 8), (1, 0)], 1),
        ([(1, 0), (3, 8), (3, 8)], 4),
        ([(4, 8), (4, 8)], 4),
    ],
)
def test_the_number_rises_by_success_and_never_falls(groups: list[tuple[int, int]], left: int):
    assert sampler(success=0.5, groups=2, most=4).actions_left(stats(*groups)) == left


def test_a_share_of_the_groups_plays_whole_tasks():
    tasks = sampler(whole_share=0.25).pick(2000)
    whole = [task for task in tasks if not task.params]
    assert 400 < len(whole) < 600
    assert {task.params[ACTIONS_LEFT] for task in tasks if task.params} == {1}
    assert {task.family for task in whole} == {"easy", "even", "hard", "new"}


def test_only_named_families_get_generated_instructions():
    tasks = sampler(whole_share=0.1, generated_share=0.3, generated_families=["easy"]).pick(2000)
    generated = [task for task in tasks if GENERATED in task.params]
    assert {task.family for task in generated} == {"easy"} and {task.params[GENERATED] for task in generated} == {1}
    easy = sum(task.family == "easy" for task in tasks)
    assert 0.2 * easy < len(generated) < 0.4 * easy


@pytest.mark.parametrize(
    ("env", "settings", "problem"),
    [
        (LOCKS, {"generated_families": ["chain"]}, "makes no instructions"),
        (FORMS, {"generated_families": ["login"]}, "'login', which the recipe does not use"),
        (FORMS, {"generated_share": 0.7, "whole_share": 0.7}, "exceed 1 together"),
        (FORMS, {"groups": 24, "whole_share": 0.6}, "of which 40% do"),
    ],
)
def test_contradictory_settings_are_refused(env: dict, settings: dict, problem: str):
    with pytest.raises(ConfigError, match=problem):
        recipe(env=env, control={"sampler": {"name": "subgoals", **settings}})


def test_a_turn_limit_from_successes_is_refused():
    with pytest.raises(ConfigError, match="longest_success"):
        recipe(env=LOCKS, control={"sampler": "subgoals", "horizon": "longest_success"})


def test_the_ledger_carries_the_number_through_a_run(ledger):
    control = {"sampler": {"name": "subgoals", "groups": 1, "whole_share": 0.0}, "rollouts_per_group": 2}
    chosen = recipe(env=LOCKS, control=control, train={"groups_per_batch": 1})
    seen: list[int] = []
    for _ in range(3):
        with manager_of(chosen, ledger) as one:  # a new manager each time: it keeps no state
            while one.tick():
                pass
            leases = ledger.rollouts.claim("w", 2, 60)
            seen.append(leases[0].task.params[ACTIONS_LEFT])
            for lease in ledger.rollouts.claim("w", 100, 60) + leases:
                finish(ledger, lease, reward=1.0)
            while one.tick():
                pass
    outcomes = ledger.statistics.family("chain", 32).outcomes
    assert seen[0] == 1 and seen == sorted(seen) and seen[-1] > 1
    assert max(outcome.params[ACTIONS_LEFT] for outcome in outcomes) == seen[-1]
    assert read_series(ledger.run_dir, ["data/actions_left"]).series


def test_a_family_without_an_expert_is_refused():
    pages = {"name": "miniwob", "suite": "miniwob-all", "families": ["login-user", "click-pie"]}
    with pytest.raises(ConfigError, match="has no expert for the family 'click-pie'"):
        recipe(env=pages, control={"sampler": "subgoals"})


def test_the_metric_is_that_of_the_group():
    assert sampler().measures(Task(env="x", family="y", seed=0, params={ACTIONS_LEFT: 2})) == {ACTIONS_LEFT: 2}
    assert sampler().measures(Task(env="x", family="y", seed=0)) == {}
