"""Filters: who stays, who leaves, and the recorded reason."""

import pytest
from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.config import Filter
from quartet.errors import ConfigError
from quartet.recipe.file import parse_recipe
from quartet.registry import build
from quartet.report.totals import run_totals
from quartet.types import Group, GroupMember, GroupState, Observation, ReplayRule, Status, Task, Trajectory, Turn
from tests.ledger.samples import finish, manager_of, plan, recipe, trajectory

SEEN = Observation(goal="", text="")
NO_ACTION = Turn(observation=SEEN, call_index=0, response="?", actions=[taken_action("?", "not an action")])
TASK = Task(env="bandit", family="left", seed=0)


def group(*members: Trajectory) -> Group:
    return Group(
        group_id=1,
        task=TASK,
        members=[GroupMember(rollout_id=number, trajectory=member) for number, member in enumerate(members)],
    )


def kept(name: str, members: list[Trajectory], **settings) -> list[int] | str:
    """Positions of the members that stay, or the reason of the drop."""
    passed = build(Filter.model_validate({"name": name} | settings)).apply(group(*members))
    return passed if isinstance(passed, str) else [member.rollout_id for member in passed.members]


def rewards(*values: float) -> list[Trajectory]:
    return [trajectory(TASK, reward=value) for value in values]


@pytest.mark.parametrize(
    ("successes", "verdict"), [(0, "too_hard"), (1, [0, 1, 2, 3]), (3, [0, 1, 2, 3]), (4, "too_easy")]
)
def test_accuracy_band_includes_its_ends(successes, verdict):
    members = rewards(*[1.0] * successes, *[0.0] * (4 - successes))
    assert kept("accuracy_band", members, min_success=0.25, max_success=0.75) == verdict


def test_an_anchor_is_no_success_of_its_group():
    """Four failures and an imitated success: no rollout of the policy has solved the task."""
    failed = group(*rewards(0.0, 0.0, 0.0, 0.0))
    (success,) = rewards(1.0)
    band = build(Filter.model_validate({"name": "accuracy_band", "min_success": 0.1}))
    for rule, verdict in ((ReplayRule.ANCHOR, "too_hard"), (ReplayRule.STORED, 5)):
        stored = GroupMember(rollout_id=9, trajectory=success, replay=rule)
        passed = band.apply(replace(failed, members=[*failed.members, stored]))
        assert (passed if isinstance(passed, str) else len(passed.members)) == verdict


@pytest.mark.parametrize(
    ("own", "anchor", "is_kept"),
    [((0.0, 0.0), 1.0, True), ((1.0, 1.0), 1.0, False), ((1.0, 1.0), 0.5, False), ((0.0, 1.0), 1.0, True)],
)
def test_an_anchor_keeps_a_group_of_failures_and_is_not_compared(own, anchor, is_kept):
    """Equal successes teach nothing, whatever reward the anchor has."""
    solved = group(*rewards(*own))
    stored = GroupMember(rollout_id=9, trajectory=rewards(anchor)[0], replay=ReplayRule.ANCHOR)
    mixed = build(Filter.model_validate({"name": "mixed_outcome"}))
    passed = mixed.apply(replace(solved, members=[*solved.members, stored]))
    assert isinstance(passed, Group) if is_kept else passed == "equal_rewards"


CRITIC = {"credit": "gae", "loss": {"terms": ["ppo_clip", "value"]}}
ONE = {"control": {"rollouts_per_group": 1}, "admission": {"min_rollouts_per_group": 1}}


def test_a_credit_that_does_not_compare_totals_needs_a_choice_of_filters():
    """Under `gae` a group of one has a gradient; the default filter would drop it without a word."""
    base = {"name": "x", "model": {"path": "/m"}, "env": {"name": "bandit"}}
    for credit in (CRITIC, {"credit": "reinforce"}, {"credit": "grpo_turns"}):
        with pytest.raises(ConfigError, match=r"the default filter mixed_outcome drops .*\n.*set filters = \[\]"):
            parse_recipe(base | credit, "test")
        assert recipe(**credit, filters=[]).filters == []
        assert [one.name for one in recipe(**credit, filters=["mixed_outcome"]).filters] == ["mixed_outcome"]
    assert [one.name for one in parse_recipe(base | {"credit": "rloo"}, "test").filters] == ["mixed_outcome"]


def test_groups_of_one_rollout_refuse_the_filter_of_equal_rewards():
    for credit in (CRITIC, {}):
        with pytest.raises(ConfigError, match=r"drops every group of one rollout.*\n.*set filters = \[\]"):
            recipe(**credit, **ONE, filters=["mixed_outcome"])
        assert recipe(**credit, **ONE, filters=[]).control.rollouts_per_group == 1
    forked = {"rollout": {"brancher": "branch_grpo"}}
    assert recipe(**ONE, **forked).filters, "forks are compared with their parent"
    assert recipe(**ONE, replay="success_pool").filters, "stored successes join the group"
    assert recipe(**ONE | {"control": ONE["control"] | {"allocator": "ettrl"}}).filters, "a second round adds forks"


def test_overlong_leaves_out_what_was_cut_off_or_too_long():
    members = [
        trajectory(TASK, reward=1.0),
        trajectory(TASK, status=Status.TRUNCATED_TURNS),
        trajectory(TASK, status=Status.TRUNCATED_TOKENS),
        trajectory(TASK, versions=(0,) * 9),
    ]
    assert kept("overlong", members) == [0, 3]
    assert kept("overlong", members, max_response_tokens=9) == [0, 3]
    assert kept("overlong", members, max_response_tokens=8) == [0]
    assert kept("overlong", members[1:3]) == "overlong"


def test_short_failures_leaves_out_failures_of_few_turns():
    members = [trajectory(TASK, reward=reward, turns=turns) for reward, turns in ((0, 3), (0, 4), (1, 1), (0.5, 1))]
    assert kept("short_failures", members) == [1, 2, 3]
    assert kept("short_failures", members, min_turns=5) == [2, 3]
    assert kept("short_failures", members[:1]) == "short_failures"


def test_broken_leaves_out_failures_that_hardly_acted():
    def member(errors: int, *, reward: float) -> Trajectory:
        made = trajectory(TASK, reward=reward, turns=4)
        return replace(made, turns=[NO_ACTION if n < errors else turn for n, turn in enumerate(made.turns)])

    members = [member(2, reward=0.0), member(3, reward=0.0), member(4, reward=1.0)]
    assert kept("broken", members) == [0, 2]
    assert kept("broken", members, max_error_share=0.75) == [0, 1, 2]
    assert kept("broken", members[1:2]) == "broken"


def test_stacked_filters_judge_what_the_ones_before_them_left(ledger):
    """Without its truncated member the group has no contrast: the second filter drops it, and the ledger says why."""
    whole = recipe(filters=["overlong", "mixed_outcome"], control={"rollouts_per_group": 3})
    ledger.groups.admit(plan(rollouts=3))
    for lease in ledger.rollouts.claim("w", 3, 60):
        cut_off = Status.TRUNCATED_TURNS if lease.index == 2 else Status.COMPLETED
        finish(ledger, lease, reward=float(lease.index < 2), status=cut_off)
    with manager_of(whole, ledger) as manager:
        manager.tick()
    totals = run_totals(ledger)
    assert totals.groups[GroupState.DROPPED] == 1
    assert totals.dropped_by_reason == {"equal_rewards": 1}
    (newest,) = ledger.statistics.family("left", 32).outcomes
    assert (newest.countable, newest.successes, newest.mixed) == (3, 2, True)


def test_every_member_that_is_left_out_says_why(ledger):
    whole = recipe(filters=["overlong", "broken"], control={"rollouts_per_group": 4})
    ledger.groups.admit(plan(rollouts=4))
    for lease in ledger.rollouts.claim("w", 4, 60):
        made = trajectory(lease.task, status=Status.TRUNCATED_TURNS if lease.index == 1 else Status.COMPLETED)
        if lease.index == 2:
            made = replace(made, turns=[NO_ACTION for _ in made.turns])
        ledger.trajectories.append(lease, made, 3)
    with manager_of(whole, ledger) as manager:
        manager.tick()
    with ledger.read() as connection:
        rows = connection.exec_driver_sql("SELECT excluded FROM trajectories ORDER BY rollout_id")
        reasons = list(rows.scalars())
    assert reasons == ["", "overlong", "broken", ""]
