"""Batches: exactly once, bounded staleness, damage, and a proof that finds a violation when there is one."""

import pytest
from sqlalchemy.exc import IntegrityError

from quartet.errors import LeaseLostError, LedgerError
from quartet.ledger.members import mark_damaged
from quartet.report.staleness import lag_histogram
from quartet.report.totals import run_totals, status_counts
from quartet.types import Status
from tests.ledger.samples import finish, group_joined_by, plan, spoil, tamper, trainable_group, unguard


def claim(ledger, groups=1, *, trainer="t", max_lag=2, on_late="mask", lease_seconds=10):
    return ledger.batches.claim(trainer, groups, max_lag, on_late, lease_seconds)


def test_claim_train_commit(ledger):
    ids = [trainable_group(ledger) for _ in range(3)]
    batch = claim(ledger, 2)
    assert [group.group_id for group in batch.groups] == ids[:2]
    assert [m.trajectory.reward for m in batch.groups[0].members] == [0.0, 1.0]
    assert (batch.train_step, batch.start_version) == (1, 0)
    policy = ledger.batches.commit(batch, "policies/v000001", {"trained_tokens": 4})
    assert (policy.version, policy.train_step, ledger.batches.train_step()) == (1, 1, 1)
    assert ledger.policies.latest() == policy
    assert claim(ledger, 2) is None
    totals = run_totals(ledger)
    assert totals.groups == {"trainable": 1, "trained": 2}
    assert (totals.trained_tokens, totals.lost, totals.trained_twice) == (4, 0, 0)
    assert lag_histogram(ledger) == {0: 4}


def test_the_oldest_versions_go_first(ledger):
    new, old = trainable_group(ledger, versions=(3, 4)), trainable_group(ledger, versions=(1, 5))
    assert [group.group_id for group in claim(ledger, 2).groups] == [old, new]


def test_a_dead_trainers_batch_is_trained_exactly_once(ledger, clock):
    trainable_group(ledger)
    dead = claim(ledger, trainer="dead")
    assert claim(ledger, trainer="next") is None
    clock.now += 11
    assert ledger.batches.expire() == 1
    assert ledger.batches.expire() == 0
    batch = claim(ledger, trainer="next")
    assert batch.groups == dead.groups
    for late in (lambda: ledger.batches.renew(dead, 10), lambda: ledger.batches.commit(dead, "stale", {})):
        with pytest.raises(LeaseLostError):
            late()
    ledger.batches.release(dead)
    assert ledger.batches.commit(batch, "policies/v000001", {"trained_tokens": 2}).version == 1
    assert [policy.path for policy in ledger.policies.live()] == ["policies/v000000", "policies/v000001"]
    totals = run_totals(ledger)
    assert (totals.trained_tokens, totals.lost, totals.trained_twice) == (2, 0, 0)


def test_a_restarted_trainer_need_not_wait_for_its_own_lease(ledger):
    trainable_group(ledger)
    before = claim(ledger, lease_seconds=1000)
    after = claim(ledger, lease_seconds=1000)
    assert after.groups == before.groups and after.batch_id != before.batch_id
    with pytest.raises(LeaseLostError):
        ledger.batches.commit(before, "stale", {})


def test_release_and_renew(ledger, clock):
    trainable_group(ledger)
    batch = claim(ledger)
    clock.now += 9
    ledger.batches.renew(batch, 10)
    clock.now += 9
    assert ledger.batches.expire() == 0
    ledger.batches.release(batch)
    assert claim(ledger, trainer="other") is not None


@pytest.mark.parametrize(
    ("on_late", "versions", "dropped"),
    [
        ("mask", (0, 3), False),
        ("mask", (0, 0), True),
        ("wait", (0, 3), False),
        ("wait", (0, 0), True),
        ("drop", (0, 3), True),
        ("drop", (1, 3), False),
    ],
)
def test_over_lag(ledger, on_late, versions, dropped):
    """Start version 3, at most 2 versions of lag: a token of version 0 is too old."""
    for version in range(1, 4):
        trainable_group(ledger, versions=(version - 1,))
        ledger.batches.commit(claim(ledger), f"policies/v{version}", {})
    trainable_group(ledger, versions=versions)
    batch = claim(ledger, on_late=on_late)
    assert (batch is None) == dropped
    assert run_totals(ledger).dropped_by_reason == ({"over_lag": 1} if dropped else {})


def test_only_countable_members_are_trained(ledger):
    group_id = ledger.groups.admit(plan(rollouts=4))
    statuses = [Status.COMPLETED, Status.TRUNCATED_TIME, Status.TRUNCATED_TURNS, Status.ERROR_AGENT]
    leases = ledger.rollouts.claim("w", 4, 10)
    for lease, status in zip(leases, statuses, strict=True):
        finish(ledger, lease, status=status)
    ledger.groups.close(group_id)
    members = [member.rollout_id for member in ledger.groups.load(group_id).members]
    assert members == [leases[0].rollout_id, leases[2].rollout_id]
    ledger.groups.make_trainable(group_id, members, 2)
    assert [m.rollout_id for m in claim(ledger).groups[0].members] == members


def test_members_a_filter_leaves_out_are_kept_but_not_trained(ledger):
    group_id = ledger.groups.admit(plan(rollouts=3))
    for lease in ledger.rollouts.claim("w", 3, 10):
        finish(ledger, lease)
    ledger.groups.close(group_id)
    kept = [member.rollout_id for member in ledger.groups.load(group_id).members[:2]]
    ledger.groups.make_trainable(group_id, kept, 2, excluded={3: "purify"})
    batch = claim(ledger)
    assert [m.rollout_id for m in batch.groups[0].members] == kept
    ledger.batches.commit(batch, "policies/v000001", {"trained_tokens": 2})
    assert (run_totals(ledger).trained_tokens, run_totals(ledger).lost) == (2, 0)


def test_a_damaged_blob_costs_its_member_and_a_group_that_gets_too_small(ledger):
    broken, whole = trainable_group(ledger, family="broken"), trainable_group(ledger, family="whole")
    (digest,) = spoil(ledger, ledger.groups.load(broken).members[0].rollout_id)
    assert [group.group_id for group in claim(ledger).groups] == [whole]
    totals = run_totals(ledger)
    assert totals.dropped_by_reason == {"damaged": 1}
    assert (totals.lost, status_counts(ledger)) == (0, {"completed": 3, "damaged": 1})
    (event,) = [event for event in ledger.events() if event.kind == "blob_damaged"]
    assert digest in event.fields["finding"]


def test_a_claimed_group_that_has_only_replayed_members_left_is_given_up(ledger):
    """Another process may find a claimed group's own members damaged before its trainer reads them."""
    trainable_group(ledger)
    ledger.pool.store(plan().task, [2], keep=1)
    group_joined_by(ledger, 2)
    claim = ledger.batches.lease("t", 2, 2, "mask", 60)
    assert claim is not None
    with ledger.db.write() as connection:
        mark_damaged(ledger.db, connection, {3: "its blob is damaged"})
    assert ledger.batches.load(claim) is None
    assert run_totals(ledger).dropped_by_reason == {"damaged": 1}
    batch = ledger.batches.claim("t", 1, 2, "mask", 60)
    assert batch is not None and [group.group_id for group in batch.groups] == [1]


def test_a_crash_between_checkpoints_rolls_back_and_reuses_no_version(ledger):
    for version in (1, 2):
        trainable_group(ledger)
        ledger.batches.commit(claim(ledger), f"policies/v{version}", {})
    assert ledger.batches.roll_back(1) == 1
    assert (ledger.batches.train_step(), ledger.policies.latest().version) == (1, 1)
    batch = claim(ledger)
    assert batch.train_step == 2
    assert ledger.batches.commit(batch, "policies/v3", {}).version == 3
    assert [policy.version for policy in ledger.policies.live()] == [0, 1, 3]
    assert (run_totals(ledger).lost, run_totals(ledger).trained_twice) == (0, 0)


def test_a_roll_back_takes_the_batch_in_training_along(ledger):
    """It starts from weights that are undone: committed, it would bring the undone step back without its uses."""
    for version in (1, 2):
        trainable_group(ledger)
        ledger.batches.commit(claim(ledger), f"policies/v{version}", {})
    trainable_group(ledger)
    batch = claim(ledger)
    assert (batch.train_step, batch.start_version) == (3, 2)
    ledger.batches.roll_back(1)
    with pytest.raises(LeaseLostError):
        ledger.batches.commit(batch, "policies/v3", {})
    assert (ledger.batches.train_step(), run_totals(ledger).groups) == (1, {"trainable": 2, "trained": 1})
    assert (run_totals(ledger).lost, run_totals(ledger).trained_twice) == (0, 0)


def test_no_claim_after_the_last_train_step(ledger):
    trainable_group(ledger)
    trainable_group(ledger)
    ledger.batches.limit_train_steps(1)
    batch = claim(ledger)
    assert not ledger.batches.stop_claims()
    ledger.batches.commit(batch, "policies/v1", {})
    assert ledger.batches.stop_claims()
    assert claim(ledger) is None
    ledger.batches.limit_train_steps(None)
    assert claim(ledger) is not None


TAMPERING = {
    "an unused member of a trained group": ("UPDATE uses SET trajectory_id = 3 WHERE trajectory_id = 1", 1, 0),
    "a batch that vanished": ("UPDATE groups SET state = 'claimed'", 4, 0),
    "a drop without reason": ("UPDATE groups SET state = 'dropped' WHERE id = 1", 2, 0),
    "a record that vanished": ("UPDATE trajectories SET kind = 'late', counted = false WHERE id = 4", 1, 0),
    "a second use": ("INSERT INTO uses (trajectory_id, batch_id, role, voided) VALUES (1, 1, 'fresh', true)", 0, 1),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_a_broken_promise_is_found(ledger, name):
    tampering, lost, trained_twice = TAMPERING[name]
    trainable_group(ledger)
    ledger.batches.commit(claim(ledger), "policies/v1", {})
    trainable_group(ledger)
    assert (run_totals(ledger).lost, run_totals(ledger).trained_twice) == (0, 0)
    unguard(ledger, "groups")
    tamper(ledger, tampering)
    assert (run_totals(ledger).lost, run_totals(ledger).trained_twice) == (lost, trained_twice)


def test_the_database_itself_refuses_a_second_live_use(ledger):
    trainable_group(ledger)
    claim(ledger)
    with pytest.raises(IntegrityError):
        tamper(ledger, "INSERT INTO uses (trajectory_id, batch_id, role, voided) VALUES (1, 1, 'fresh', false)")


def test_the_batch_after_an_uncommitted_one_starts_from_the_version_that_it_will_get(ledger):
    for version in (0, 0, 1):
        trainable_group(ledger, versions=(version,))
    first = claim(ledger)
    second = ledger.batches.claim("t", 1, 2, "mask", 10, after=first)
    assert (second.train_step, second.start_version) == (2, 1)
    assert lags(second) == {1}
    assert ledger.batches.claim("other", 1, 2, "mask", 10) is None
    with pytest.raises(LedgerError, match="starts from version 1, which is not committed"):
        ledger.batches.commit(second, "p2", {})
    assert ledger.batches.train_step() == 0
    assert ledger.batches.commit(first, "p1", {}).version == second.start_version
    assert ledger.batches.commit(second, "p2", {}).version == 2
    totals = run_totals(ledger)
    assert (totals.groups, totals.lost, totals.trained_twice) == ({"trainable": 1, "trained": 2}, 0, 0)


def lags(batch):
    members = [member for group in batch.groups for member in group.members]
    versions = {version for member in members for version in member.trajectory.versions}
    return set(batch.ancestry.lags(versions, batch.start_version))


def test_the_lag_of_a_batch_is_counted_from_the_version_before_it_is_committed(ledger):
    """At most 0 versions of lag: the second group's tokens would be too old for the second train step."""
    for _ in range(2):
        trainable_group(ledger, versions=(0,))
    first = claim(ledger, max_lag=0)
    assert ledger.batches.claim("t", 1, 0, "mask", 10, after=first) is None
    assert run_totals(ledger).dropped_by_reason == {"over_lag": 1}


def test_no_batch_is_claimed_after_one_that_was_lost(ledger, clock):
    for _ in range(2):
        trainable_group(ledger)
    first = claim(ledger)
    clock.now += 11
    assert ledger.batches.expire() == 1
    with pytest.raises(LeaseLostError):
        ledger.batches.claim("t", 1, 2, "mask", 10, after=first)


def test_a_restarted_trainer_gives_back_both_batches(ledger):
    for _ in range(2):
        trainable_group(ledger)
    first = claim(ledger)
    second = ledger.batches.claim("t", 1, 2, "mask", 10, after=first)
    again = claim(ledger, 2)
    assert [group.group_id for group in again.groups] == [1, 2]
    for late in (first, second):
        with pytest.raises(LeaseLostError):
            ledger.batches.commit(late, "stale", {})


def test_the_last_claims_include_the_batch_after_the_uncommitted_one(ledger):
    for _ in range(3):
        trainable_group(ledger)
    first = claim(ledger)
    second = ledger.batches.claim("t", 1, 2, "mask", 10, after=first)
    assert not ledger.batches.stop_claims()
    ledger.batches.commit(first, "p1", {})
    assert ledger.batches.claim("t", 1, 2, "mask", 10, after=second) is None
    assert ledger.batches.commit(second, "p2", {}).train_step == 2
    assert claim(ledger) is None and ledger.batches.stop_claims()
