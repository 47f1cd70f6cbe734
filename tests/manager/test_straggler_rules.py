"""Groups that start more rollouts than they need, or close before all have ended."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quartet.ledger.rows import AppendOutcome
from quartet.registry import build, names
from quartet.report.bias import selection_bias
from quartet.report.totals import run_totals
from quartet.types import GroupState, Status
from tests.ledger.samples import finish, manager_of, recipe, trajectory


@pytest.mark.slow
@given(
    size=st.integers(2, 64), extra=st.integers(1, 9), share=st.floats(0, 1), rule=st.sampled_from(names("straggler"))
)
def test_a_quorum_can_be_met_and_trained(size, extra, share, rule):
    own = {"redundancy": {"extra_rollouts": extra}, "early_stop": {"min_share": share}}.get(rule, {})
    admission = {"schedule": "batch_synchronous", "max_lag": 1, "min_rollouts_per_group": min(size, 5)}
    settings = recipe(control={"rollouts_per_group": size}, admission=admission, straggler={"name": rule} | own)
    quorum = build(settings.straggler, settings).quorum(size)
    assert min(size, 5) <= quorum.enough <= quorum.queued
    assert quorum.queued == (size + extra if rule == "redundancy" else size)
    if rule == "early_stop" and size > 5:
        assert quorum.enough == min(size, max(5, math.ceil(size * share) + 2))
    elif rule != "early_stop":
        assert quorum.enough == size


def redundant(ledger, extra=2):
    straggler = {"name": "redundancy", "extra_rollouts": extra}
    return manager_of(recipe(straggler=straggler, train={"groups_per_batch": 1}), ledger)


def tick(manager) -> None:
    while manager.tick():
        pass


def test_the_first_to_finish_make_the_group_and_the_others_are_cancelled(ledger):
    with redundant(ledger) as manager:
        tick(manager)
        first, second, third, fourth = ledger.rollouts.claim("w", 4, 60)
        assert len({lease.group_id for lease in (first, second, third, fourth)}) == 1
        finish(ledger, second, reward=1.0)
        tick(manager)
        assert ledger.rollouts.held([first, third]) == {(first.rollout_id, 1), (third.rollout_id, 1)}
        finish(ledger, fourth)
        tick(manager)
        assert ledger.statistics.queue_sizes().groups[GroupState.TRAINABLE] == 1
        assert ledger.rollouts.held([first, third]) == set()
        members = ledger.groups.load(first.group_id).members
        assert [member.rollout_id for member in members] == [second.rollout_id, fourth.rollout_id]
        assert "group_deadline" not in {event.kind for event in ledger.events()}, "nothing worth telling a person"


def test_failures_do_not_make_a_group(ledger):
    with redundant(ledger) as manager:
        tick(manager)
        first, second, third, fourth = ledger.rollouts.claim("w", 4, 60)
        for lease in (first, second):
            finish(ledger, lease, status=Status.TRUNCATED_TIME)
        finish(ledger, third, reward=1.0)
        tick(manager)
        assert ledger.rollouts.held([fourth])
        finish(ledger, fourth)
        tick(manager)
        assert ledger.statistics.queue_sizes().groups[GroupState.TRAINABLE] == 1


def test_rollout_finished_before_its_group_closes_is_a_member(ledger):
    with redundant(ledger) as manager:
        tick(manager)
        leases = ledger.rollouts.claim("w", 4, 60)
        for lease in leases[:3]:
            finish(ledger, lease, reward=float(lease.index))
        tick(manager)
        assert len(ledger.groups.load(leases[0].group_id).members) == 3


def test_tokens_of_a_cancelled_rollout_are_kept_and_audited(ledger):
    with redundant(ledger) as manager:
        tick(manager)
        first, second, third, _ = ledger.rollouts.claim("w", 4, 60)
        finish(ledger, first, reward=1.0)
        finish(ledger, second)
        tick(manager)
        partial = trajectory(third.task, status=Status.CANCELLED, versions=(0,) * 6)
        assert ledger.trajectories.recycle(third, partial, 9) is AppendOutcome.LATE
        assert run_totals(ledger).attempts == {"final": 2, "late": 1}
        bias = selection_bias(ledger)
        assert (bias.sampled, bias.counted.rollouts) == (3, 2)
        assert bias.counted.response_tokens_ratio == pytest.approx(1 / (8 / 3), abs=1e-4), "short ones are favoured"
