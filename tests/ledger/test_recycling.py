"""Recycling: a rollout goes on from what it has, a bounded number of times, and the lease fences as always."""

import pytest

from quartet.errors import LeaseLostError
from quartet.ledger import Ledger
from quartet.ledger.attempts import MAX_EMPTY_RECYCLES
from quartet.ledger.rows import AppendOutcome
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals, status_counts
from quartet.types import Status, Task
from tests.ledger.samples import finish, plan, spoil, trajectory


def recycle(ledger, lease, *, versions=(0, 0), max_recycles=2):
    return ledger.trajectories.recycle(
        lease, trajectory(lease.task, status=Status.CANCELLED, versions=versions), max_recycles
    )


def claim(ledger):
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    return lease


def test_the_next_attempt_gets_what_the_last_one_had(ledger):
    ledger.groups.admit(plan(rollouts=2))
    first = claim(ledger)
    assert ledger.trajectories.load_beginning(first).calls == []
    assert recycle(ledger, first, versions=(0, 0, 1)) is AppendOutcome.RECYCLED
    again = claim(ledger)
    assert (again.rollout_id, again.attempt, again.recycled) == (first.rollout_id, 2, 1), "before new ones"
    assert again.sampling_seed == first.sampling_seed
    (call,) = ledger.trajectories.load_beginning(again).calls
    assert call.response.versions == [0, 0, 1]
    assert recycle(ledger, again, versions=(0, 0, 1, 1)) is AppendOutcome.RECYCLED
    assert ledger.trajectories.load_beginning(claim(ledger)).calls[0].response.versions == [0, 0, 1, 1]


def test_a_partial_is_never_a_member(ledger):
    group_id = ledger.groups.admit(plan(rollouts=1))
    recycle(ledger, claim(ledger))
    assert ledger.groups.load(group_id).members == []
    assert ledger.groups.closable(1e9) == []
    finish(ledger, claim(ledger), versions=(0, 0, 1))
    assert ledger.groups.closable(1e9) == [group_id]
    ledger.groups.close(group_id)
    (member,) = ledger.groups.load(group_id).members
    assert member.trajectory.calls[0].response.versions == [0, 0, 1]
    assert run_totals(ledger).attempts == {"final": 1, "partial": 1}
    assert run_totals(ledger).response_tokens == 3, "no token counts twice"


def test_it_is_evicted_after_so_many_times(ledger):
    group_id = ledger.groups.admit(plan(rollouts=1))
    outcomes = [recycle(ledger, claim(ledger)) for _ in range(3)]
    assert outcomes == [AppendOutcome.RECYCLED, AppendOutcome.RECYCLED, AppendOutcome.EVICTED]
    assert ledger.rollouts.claim("w", 1, 60) == []
    assert status_counts(ledger) == {"cancelled": 1}
    assert ledger.groups.closable(1e9) == [group_id]
    assert ledger.events(1)[0].kind == "rollout_evicted"
    assert check_ledger(ledger).findings == []


def test_recalls_before_the_first_token_do_not_count(ledger):
    """No token grows old by them. They have a bound of their own."""
    ledger.groups.admit(plan(rollouts=1))
    for _ in range(3):
        assert recycle(ledger, claim(ledger), versions=(), max_recycles=1) is AppendOutcome.RECYCLED
    assert recycle(ledger, claim(ledger), versions=(0,), max_recycles=1) is AppendOutcome.RECYCLED
    assert recycle(ledger, claim(ledger), versions=(0, 1), max_recycles=1) is AppendOutcome.EVICTED
    ledger.groups.admit(plan(rollouts=1))
    for _ in range(MAX_EMPTY_RECYCLES):
        assert recycle(ledger, claim(ledger), versions=()) is AppendOutcome.RECYCLED
    assert recycle(ledger, claim(ledger), versions=()) is AppendOutcome.EVICTED
    assert check_ledger(ledger).findings == []


def test_a_recalled_attempt_is_no_failure(ledger, clock):
    """Two recalls leave all three attempts of `max_attempts`, whether they fail or their worker dies."""
    ledger.groups.admit(plan(rollouts=1))
    for _ in range(2):
        recycle(ledger, claim(ledger))
    assert finish(ledger, claim(ledger), status=Status.ERROR_ENV) is AppendOutcome.REQUEUED
    claim(ledger)
    clock.now += 61
    assert ledger.rollouts.expire(max_attempts=3) == 1
    last = claim(ledger)
    assert (last.attempt, last.recycled) == (5, 2)
    assert ledger.trajectories.load_beginning(last).calls, "failures do not lose what there was"
    assert finish(ledger, last, status=Status.ERROR_ENV) is AppendOutcome.APPENDED


def test_a_lease_that_was_lost_recycles_nothing(ledger, clock):
    ledger.groups.admit(plan(rollouts=1))
    asleep = claim(ledger)
    clock.now += 61
    ledger.rollouts.expire()
    awake = claim(ledger)
    assert ledger.rollouts.held([asleep, awake]) == {(awake.rollout_id, awake.attempt)}
    with pytest.raises(LeaseLostError):
        recycle(ledger, asleep)
    assert run_totals(ledger).attempts == {"superseded": 1}
    assert recycle(ledger, awake, versions=(3,)) is AppendOutcome.RECYCLED
    assert ledger.trajectories.load_beginning(claim(ledger)).calls[0].response.versions == [3]


def test_a_group_that_closed_meanwhile_keeps_it_as_late(ledger):
    group_id = ledger.groups.admit(plan(rollouts=1))
    lease = claim(ledger)
    ledger.groups.close(group_id)
    assert recycle(ledger, lease) is AppendOutcome.LATE
    assert ledger.rollouts.claim("w", 1, 60) == []


def test_a_damaged_partial_is_forgotten_with_an_event(ledger):
    ledger.groups.admit(plan(rollouts=1))
    first = claim(ledger)
    recycle(ledger, first)
    spoil(ledger, first.rollout_id)
    assert ledger.trajectories.load_beginning(claim(ledger)).calls == []
    assert ledger.events(1)[0].kind == "partial_damaged"


def test_garbage_collection_keeps_what_a_rollout_goes_on_from(ledger):
    ledger.groups.admit(plan(rollouts=1))
    recycle(ledger, claim(ledger))
    assert ledger.disk.collect_garbage() == 0
    assert ledger.trajectories.load_beginning(claim(ledger)).calls


def as_version_3(ledger) -> None:
    """What the older Quartet wrote: without the columns of recycling, of quorums and of all that came later."""
    with ledger.db.write() as connection:
        of_groups, of_rollouts = ("group_added", "group_moved"), ("rollout_added", "rollout_ended")
        for trigger in (*of_groups, *of_rollouts):
            table = "groups" if trigger in of_groups else "rollouts"
            of_table = f" ON {table}" if connection.dialect.name == "postgresql" else ""
            connection.exec_driver_sql(f"DROP TRIGGER {trigger}{of_table}")
        connection.exec_driver_sql("DROP TABLE group_sizes")
        for index in ("rounds_that_may_end", "open_groups_by_lease", "leases_by_deadline", "policies_rolled_back"):
            connection.exec_driver_sql(f"DROP INDEX {index}")
        connection.exec_driver_sql("DROP INDEX rollouts_by_parent")
        connection.exec_driver_sql("DROP INDEX rollouts_by_beginning")
        for index in (
            "groups_beside",
            "batches_by_state",
            "pool_by_task",
            "pool_by_rollout",
            "one_final_trajectory_per_part",
        ):
            connection.exec_driver_sql(f"DROP INDEX {index}")
        for index, columns in (
            ("batches_by_state", "batches (state, train_step)"),
            ("pool_by_task", "pool (task_key, outdated, id)"),
            ("one_final_trajectory_per_rollout", "trajectories (rollout_id) WHERE kind = 'final'"),
        ):
            connection.exec_driver_sql(f"CREATE INDEX {index} ON {columns}")
        # SQLite drops no column with a foreign key.
        connection.exec_driver_sql("ALTER TABLE groups RENAME COLUMN rollouts_of TO of_a_later_version")
        for statement in (
            "DROP TABLE pictures",
            "ALTER TABLE trajectories ADD COLUMN screenshots_blob TEXT",
            "ALTER TABLE trajectories ADD COLUMN screenshots_bytes INTEGER NOT NULL DEFAULT 0",
            "CREATE INDEX trajectories_by_screenshots ON trajectories (screenshots_blob)",
        ):
            connection.exec_driver_sql(statement)
        for table, column in (
            ("modules", "capacity"),
            ("modules", "live_until"),
            ("rollouts", "guided"),
            ("rollouts", "round"),
            ("rollouts", "parent_id"),
            ("rollouts", "parent_call"),
            *((table, "policy") for table in ("groups", "trajectories", "batches", "pool")),
            ("trajectories", "role"),
            ("trajectories", "part"),
            ("groups", "unfinished"),
            ("groups", "enough"),
            ("groups", "leased_at"),
            ("groups", "failures"),
            ("rollouts", "failures"),
            ("rollouts", "recycled"),
            ("rollouts", "partial"),
            ("rollouts", "beginning"),
            ("rollouts", "beginning_bytes"),
            ("groups", "versions"),
            ("trajectories", "versions"),
            ("trajectories", "error"),
            ("trajectories", "valid_actions"),
        ):
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    ledger.set_value("schema_version", 3)


def test_a_ledger_of_schema_version_3_is_upgraded(ledger, clock):
    group_id = ledger.groups.admit(plan(rollouts=2))
    as_version_3(ledger)
    upgraded = Ledger.open(ledger.run_dir, clock=clock, upgrade=True)
    for _ in range(2):
        assert upgraded.groups.closable(1e9) == []
        recycle(upgraded, claim(upgraded))
        finish(upgraded, claim(upgraded))
    assert upgraded.groups.closable(1e9) == [group_id]
    upgraded.close()


def test_an_upgrade_leaves_no_success_under_the_key_of_another_task(ledger, clock):
    """Before schema version 5 a task's key did not name its parameters."""
    plain = Task(env="bandit", family="left", seed=1)
    long = Task(env="bandit", family="left", seed=1, params={"turns": 2})
    ledger.pool.store_demonstrations([trajectory(plain, reward=1.0), trajectory(long, reward=1.0)], 8)
    with ledger.db.write() as connection:
        connection.exec_driver_sql("UPDATE pool SET task_key = 'bandit/left/1'")
    as_version_3(ledger)
    upgraded = Ledger.open(ledger.run_dir, clock=clock, upgrade=True)
    assert len(upgraded.pool.usable(plain, 8)) == 1
    assert upgraded.pool.usable(long, 8) == []
    upgraded.close()
