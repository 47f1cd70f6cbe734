"""The disk budget: what goes, what stays, and when the run must stop."""

import os
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from quartet.ledger.checkpoints import CheckpointProgress, checkpoint_folder
from quartet.ledger.held_policy import LOCKED, held_policy
from quartet.ledger.pictures import pictures_of
from quartet.ledger.policies import Policies
from quartet.ledger.recovery import points_to_go_on_from
from quartet.ledger.schema import trajectories
from quartet.manager.retention import Retention
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from quartet.telemetry.presence import Presence
from quartet.train.checkpoint.writer import delete_folders, superfluous_checkpoints
from quartet.types import Status
from tests.ledger.samples import finish, group_joined_by, plan, recipe, trainable_group, trajectory


def retention(ledger, **disk) -> Retention:
    return Retention(recipe(disk={"min_free_megabytes": 1, **disk}).disk, ledger, ledger.run_dir)


def publish(ledger, steps: range, train_steps_per_checkpoint: int = 1000, begun: tuple[int, int] | None = None) -> None:
    """Commit train steps; `begun` are the train steps of the newest whole checkpoint and of the one that has begun."""
    progress = CheckpointProgress(whole=begun[0], begun=begun[1]) if begun else None
    for step in steps:
        trainable_group(ledger)
        batch = ledger.batches.claim("t", 1, 100, "mask", 60)
        folder = ledger.run_dir / "policies" / f"v{step:06d}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"weights")
        if batch.train_step % train_steps_per_checkpoint == 0:
            checkpoint_folder(ledger.run_dir, batch.train_step, batch.batch_id).mkdir(parents=True)
        ledger.batches.commit(batch, str(folder), {}, progress)


def folders(ledger) -> list[str]:
    return sorted(path.name for path in (ledger.run_dir / "policies").iterdir())


def test_newest_first_best_and_those_under_evaluation_stay(ledger):
    publish(ledger, range(1, 4))
    ledger.evaluations.admit("during/3", [])
    publish(ledger, range(4, 8))
    ledger.policies.mark_best(2, 0.9)
    assert retention(ledger, keep_policies=2).sweep() is None
    assert folders(ledger) == ["v000002", "v000003", "v000006", "v000007"]
    assert [policy.version for policy in ledger.policies.on_disk()] == [0, 2, 3, 6, 7]
    best = ledger.policies.best()
    assert best is not None and best.version == 2


def test_the_policies_that_a_checkpoint_goes_on_from_stay(ledger):
    publish(ledger, range(1, 9), train_steps_per_checkpoint=3)
    retention(ledger, keep_policies=1).sweep()
    assert folders(ledger) == ["v000003", "v000006", "v000008"]
    assert [point.train_step for point in points_to_go_on_from(ledger, 3)] == [6, 3]


def test_the_policy_whose_checkpoint_is_being_written_stays(ledger):
    """Its checkpoint becomes whole after later commits; until then only the commit's record says that it is needed."""
    publish(ledger, range(1, 4), train_steps_per_checkpoint=3)
    publish(ledger, range(4, 7), begun=(3, 6))
    publish(ledger, range(7, 9), begun=(3, 6))
    retention(ledger, keep_policies=1).sweep()
    assert folders(ledger) == ["v000003", "v000006", "v000008"]


def test_pruning_keeps_the_newest_pairs_and_no_other_checkpoint(ledger):
    """A checkpoint that was rolled back, or whose policy is gone, must not take the place of one that can be used."""
    publish(ledger, range(1, 6), train_steps_per_checkpoint=1)
    ledger.batches.roll_back(4)
    shutil.rmtree(ledger.run_dir / "policies" / "v000003")
    incomplete = checkpoint_folder(ledger.run_dir, 5, 9).with_suffix(".writing")
    incomplete.mkdir()
    delete_folders(superfluous_checkpoints(ledger, 2))
    left = sorted(path.name for path in incomplete.parent.iterdir())
    assert left == ["step_000002_batch_000002", "step_000004_batch_000004"]


def test_rolled_back_policies_take_no_place_of_those_that_are_live(ledger):
    publish(ledger, range(1, 9))
    ledger.batches.roll_back(4)
    retention(ledger, keep_policies=2).sweep()
    assert folders(ledger) == ["v000003", "v000004"]
    assert ledger.policies.next_version() == 9


def test_policies_served_or_being_loaded_are_kept(ledger):
    publish(ledger, range(1, 9))
    ledger.policies.expect_engines(["engine", "engine-2"])
    ledger.policies.mark_settled(8, serving=8)
    ledger.policies.mark_settled(6, serving=6, engine="engine-2")
    retention(ledger, keep_policies=1).sweep()
    assert folders(ledger) == ["v000006", "v000007", "v000008"]


def test_the_policy_that_a_starting_engine_loads_is_kept_until_it_has_settled(ledger):
    publish(ledger, range(1, 4))
    ledger.policies.mark_settled(3, serving=3)
    sweeper = retention(ledger, keep_policies=1)
    sweeper.sweep()
    Presence(ledger.modules, "engine-2")
    publish(ledger, range(4, 7))
    ledger.policies.mark_settled(6, serving=6)
    sweeper.sweep()
    assert folders(ledger) == ["v000003", "v000004", "v000005", "v000006"]
    ledger.policies.mark_settled(6, serving=6, engine="engine-2")
    sweeper.sweep()
    assert folders(ledger) == ["v000006"]


def test_a_manager_that_starts_while_an_engine_does_deletes_no_policy_that_may_be_loading(ledger):
    publish(ledger, range(1, 4))
    ledger.policies.mark_settled(3, serving=3)
    Presence(ledger.modules, "engine-2")
    retention(ledger, keep_policies=1).sweep()
    assert folders(ledger) == ["v000001", "v000002", "v000003"]


def test_the_policy_to_which_an_engine_went_back_is_kept(ledger):
    publish(ledger, range(1, 9))
    ledger.policies.mark_settled(8, serving=5)  # the canary of the others failed
    retention(ledger, keep_policies=1).sweep()
    assert folders(ledger) == ["v000005", "v000008"]


def test_weights_outside_the_run_are_never_deleted(ledger, tmp_path):
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    for _ in range(3):
        trainable_group(ledger)
        ledger.batches.commit(ledger.batches.claim("t", 1, 100, "mask", 60), str(outside), {})
    retention(ledger, keep_policies=1).sweep()
    assert outside.is_dir()


def test_pictures_of_finished_groups_go_first(ledger):
    trained = trainable_group(ledger, screenshot=os.urandom(700_000))
    train_one(ledger)
    waiting = trainable_group(ledger, screenshot=os.urandom(700_000))
    assert ledger.disk.blob_bytes()[0] > 1_400_000
    sweeper = retention(ledger, max_blob_megabytes=1)
    assert sweeper.sweep() is None
    assert 700_000 < ledger.disk.blob_bytes()[0] < 800_000
    sizes = sorted(path.stat().st_size for path in (ledger.run_dir / "blobs").rglob("*.zst"))
    assert sum(size > 100_000 for size in sizes) == 1, "the two members of a group saw the same picture: one file"
    for group_id in (trained, waiting):
        assert len(ledger.groups.load(group_id).members) == 2
    trainable_group(ledger, screenshot=os.urandom(400_000))
    assert sweeper.sweep() is not None, "it counts what came since, and nothing that it could take is over"


def test_a_picture_that_two_rollouts_share_stays_until_both_are_over(ledger):
    picture = os.urandom(200_000)
    trainable_group(ledger, screenshot=picture)
    ledger.batches.commit(ledger.batches.claim("t", 1, 2, "mask", 60), "p1", {})
    trainable_group(ledger, screenshot=picture)
    assert ledger.disk.drop_pictures(100, checkpoint_step=1) == (2, 0)
    assert any(path.stat().st_size > 100_000 for path in (ledger.run_dir / "blobs").rglob("*.zst"))


def test_without_pictures_to_delete_the_run_stops_and_says_why(ledger):
    trainable_group(ledger, screenshot=os.urandom(1_100_000))
    reason = retention(ledger, max_blob_megabytes=1).sweep()
    assert reason is not None and "disk.max_blob_megabytes = 1" in reason


def test_a_nearly_full_disk_stops_the_run(ledger):
    reason = retention(ledger, min_free_megabytes=10**9).sweep()
    assert reason is not None and "disk.min_free_megabytes" in reason


def test_late_work_has_no_pictures_to_keep_for_ever(ledger, clock):
    group_id = ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 1000)
    ledger.groups.close(group_id)
    finish(ledger, lease, screenshot=os.urandom(50_000))
    ledger.groups.drop(group_id, "too_few_countable")
    assert ledger.disk.drop_pictures(100, checkpoint_step=0)[1] > 50_000


def sweep_records(ledger, clock, **disk) -> list[int]:
    """Rollouts that still have a record afterwards."""
    settings = recipe(disk={"min_free_megabytes": 1, **disk}).disk
    assert Retention(settings, ledger, ledger.run_dir, clock=clock).sweep() is None
    return rollouts_with_records(ledger)


def rollouts_with_records(ledger) -> list[int]:
    kept = sa.select(trajectories.c.rollout_id).where(trajectories.c.blob != "").order_by(trajectories.c.id)
    with ledger.read() as connection:
        return list(connection.execute(kept).scalars())


def train_one(ledger) -> None:
    """One train step, of which the run keeps a checkpoint."""
    batch = ledger.batches.claim("t", 1, 100, "mask", 60)
    checkpoint_folder(ledger.run_dir, batch.train_step, batch.batch_id).mkdir(parents=True)
    publish_committed(ledger, batch)
    delete_folders(superfluous_checkpoints(ledger, 1))


def publish_committed(ledger, batch) -> None:
    folder = ledger.run_dir / "policies" / f"v{batch.train_step:06d}"
    folder.mkdir(parents=True)
    ledger.batches.commit(batch, str(folder), {})


def test_old_records_go_by_age_and_their_rows_stay(ledger, clock):
    trainable_group(ledger, screenshot=b"png")
    train_one(ledger)
    clock.now += 100
    trainable_group(ledger, screenshot=b"png")
    train_one(ledger)
    totals = run_totals(ledger)
    assert sweep_records(ledger, clock, max_record_age_seconds=101) == [1, 2, 3, 4]
    clock.now += 50
    assert sweep_records(ledger, clock, max_record_age_seconds=101) == [3, 4]
    assert run_totals(ledger) == totals
    assert check_ledger(ledger).findings == []
    assert ledger.disk.collect_garbage() == 0
    kept = ledger.store.load(*blobs_of(ledger, 3)).turns[0].observation.pictures
    assert [picture.data for picture in kept] == [b"png"], "shared: it stays"


def test_a_budget_counts_records_before_they_are_deleted(ledger, clock):
    """A manager that starts with old records must not subtract what it has not counted."""
    trainable_group(ledger)
    train_one(ledger)
    clock.now += 1e6
    trainable_group(ledger)
    settings = recipe(disk={"min_free_megabytes": 1, "max_record_age_seconds": 1}).disk
    swept = Retention(settings, ledger, ledger.run_dir, clock=lambda: clock.now - 10)
    assert swept.sweep() is None
    assert swept.blob_bytes == ledger.disk.blob_bytes()[0] > 0


def test_the_file_of_a_large_record_stays_and_counts_until_garbage_is_collected(ledger, clock):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    made = trajectory(lease.task)
    long = replace(made, turns=[replace(made.turns[0], response=os.urandom(200_000).hex())])
    ledger.trajectories.append(lease, long, 3)
    ledger.groups.close(1)
    ledger.groups.drop(1, "too_few_countable")
    before = ledger.disk.blob_bytes()[0]
    clock.now += 1e6
    assert sweep_records(ledger, clock, max_record_age_seconds=1) == []
    assert ledger.disk.blob_bytes()[0] == before > 100_000
    assert ledger.disk.collect_garbage() == 1
    assert ledger.disk.blob_bytes()[0] == 0


def test_a_sweep_that_takes_long_leaves_records_to_the_next_one(ledger, clock, monkeypatch):
    """After a restart all records are read again: in one sweep that would silence the manager for minutes."""
    monkeypatch.setattr("quartet.manager.retention._ROLLOUTS_PER_STEP", 2)
    monkeypatch.setattr("quartet.manager.retention.SECONDS_PER_SWEEP", 0.0)
    for _ in range(3):
        trainable_group(ledger)
        train_one(ledger)
    clock.now += 1e6
    settings = recipe(disk={"min_free_megabytes": 1, "max_record_age_seconds": 1}).disk
    sweeper = Retention(settings, ledger, ledger.run_dir, clock=clock)
    left = []
    for _ in range(3):
        assert sweeper.sweep() is None
        left.append(rollouts_with_records(ledger))
    assert left == [[3, 4, 5, 6], [5, 6], []]


def test_a_sweep_that_takes_long_leaves_pictures_to_the_next_one(ledger, monkeypatch):
    monkeypatch.setattr("quartet.manager.retention._ROLLOUTS_PER_STEP", 2)
    monkeypatch.setattr("quartet.manager.retention.SECONDS_PER_SWEEP", 0.0)
    for _ in range(3):
        trainable_group(ledger, screenshot=os.urandom(1_100_000))
        train_one(ledger)
    sweeper = retention(ledger, max_blob_megabytes=1)
    left = []
    for _ in range(3):
        assert sweeper.sweep() is None
        left.append(sweeper.blob_bytes // 1_100_000)
    assert left == [2, 1, 0]


def test_old_records_go_by_policy(ledger, clock):
    for version in range(4):
        trainable_group(ledger, versions=(version,))
        train_one(ledger)
    assert sweep_records(ledger, clock, max_record_age_versions=2) == [5, 6, 7, 8]


def test_records_without_tokens_hold_up_no_others(ledger, clock):
    """A rollout whose environment failed has no version, and nor has a demonstration."""
    ledger.pool.store_demonstrations([trajectory(plan().task, reward=1.0)], keep=8)
    ledger.groups.admit(plan(rollouts=1))
    finish(ledger, *ledger.rollouts.claim("w", 1, 60), status=Status.ERROR_ENV)
    finish(ledger, *ledger.rollouts.claim("w", 1, 60))
    ledger.groups.close(2)
    ledger.groups.drop(2, "too_few_countable")
    for version in range(4):
        trainable_group(ledger, versions=(version,))
        train_one(ledger)
    assert sweep_records(ledger, clock, max_record_age_versions=2) == [1, 7, 8, 9, 10]


def test_records_that_a_roll_back_would_train_again_stay_however_old(ledger, clock):
    publish(ledger, range(1, 6), train_steps_per_checkpoint=2)
    clock.now += 1e6
    assert sweep_records(ledger, clock, max_record_age_seconds=1) == [5, 6, 7, 8, 9, 10]
    assert ledger.batches.roll_back(2) == 3
    batch = ledger.batches.claim("t", 3, 100, "mask", 60)
    assert batch is not None and [len(group.members) for group in batch.groups] == [2, 2, 2]


def test_records_in_use_are_kept_at_any_age(ledger, clock):
    trainable_group(ledger)
    train_one(ledger)
    ledger.pool.store(plan().task, [2], keep=8)
    waiting = trainable_group(ledger)
    trainable_group(ledger)
    clock.now += 1e6
    assert sweep_records(ledger, clock, max_record_age_seconds=1) == [2, 3, 4, 5, 6]
    assert len(ledger.groups.load(waiting).members) == 2


@pytest.mark.parametrize("claimed", [False, True])
def test_a_success_that_a_group_to_be_trained_was_joined_by_stays(ledger, clock, claimed):
    trainable_group(ledger)
    train_one(ledger)
    ledger.pool.store(plan().task, [2], keep=1)
    own = group_joined_by(ledger, 2)
    ledger.pool.store(plan().task, [own], keep=1)  # rollout 2 is outdated now
    batch = ledger.batches.claim("t", 1, 100, "mask", 60) if claimed else None
    clock.now += 1e6
    assert sweep_records(ledger, clock, max_record_age_seconds=1) == [2, 3]
    if batch:
        publish_committed(ledger, batch)
        checkpoint_folder(ledger.run_dir, batch.train_step, batch.batch_id).mkdir()
        delete_folders(superfluous_checkpoints(ledger, 1))
        assert sweep_records(ledger, clock, max_record_age_seconds=1) == [3]


def blobs_of(ledger, rollout_id: int) -> tuple[str, list[str]]:
    with ledger.read() as connection:
        mine = sa.select(trajectories.c.id, trajectories.c.blob).where(trajectories.c.rollout_id == rollout_id)
        row = connection.execute(mine).one()
        return row.blob, pictures_of(connection, [row.id])[row.id]


def test_a_policy_that_a_command_reads_stays_until_the_command_has_ended(ledger):
    publish(ledger, range(1, 4))
    for folder in (ledger.run_dir / "policies").iterdir():
        (folder / LOCKED).write_text("{}")
    with held_policy(ledger, "latest") as policy:
        publish(ledger, range(4, 6))
        retention(ledger, keep_policies=1).sweep()
        assert folders(ledger) == [Path(policy.path).name, "v000005"]
        assert policy in ledger.policies.on_disk()
    retention(ledger, keep_policies=1).sweep()
    assert folders(ledger) == ["v000005"]


def test_a_command_chooses_again_if_the_run_has_deleted_the_policy_meanwhile(ledger, monkeypatch):
    publish(ledger, range(1, 4))
    newest, old = ledger.policies.latest(), ledger.policies.live()[1]
    retention(ledger, keep_policies=1).sweep()
    found = iter([old, newest])
    monkeypatch.setattr(Policies, "chosen", lambda _policies, _which: next(found))
    with held_policy(ledger, "latest") as policy:
        assert policy == newest
