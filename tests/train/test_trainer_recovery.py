"""Recovery of a trainer: checkpoints, crashes, damage and power loss."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from trainer_runs import ACTOR_CRITIC, ADAPTER, FULL, MERGED, ROUNDED, TRAIN, RecipeBuilder, Run, group, same, trained

from quartet.errors import CheckpointError
from quartet.ledger.batches import Batches
from quartet.ledger.checkpoints import CheckpointProgress, checkpoint_folder
from quartet.manager.retention import Retention
from quartet.report.check import check_ledger
from quartet.report.totals import run_totals
from quartet.train.trainer import run_trainer
from quartet.types import Batch, Policy

pytestmark = pytest.mark.slow
OWN_MODELS = {
    "credit": "gae",
    "critic": {"name": "model", "warmup_steps": 1},
    "loss": {"terms": ["ppo_clip", "value", "kl"]},
    "reference": {"train_steps_per_move": 1, "move_share": 0.5},
}
"""A critic of its own in its warm-up, and a reference that follows the policy."""
ADAPTER_AND_CRITIC = ADAPTER | ACTOR_CRITIC | {"critic": "model"}


def test_old_checkpoints_go_after_the_commit(run: Run) -> None:
    trainer = run.trainer()
    for version in range(4):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    trainer.finish()
    names = sorted(folder.name for folder in (run.run_dir / "trainer").iterdir())
    assert names == ["step_000003_batch_000003", "step_000004_batch_000004"]


@pytest.mark.parametrize(
    "method",
    [
        {},
        ROUNDED,
        OWN_MODELS,
        ADAPTER_AND_CRITIC,
        pytest.param(ROUNDED | ACTOR_CRITIC, marks=pytest.mark.campaign),
        pytest.param(ADAPTER, marks=pytest.mark.campaign),
        pytest.param(MERGED | ROUNDED, marks=pytest.mark.campaign),
        pytest.param(ADAPTER | ACTOR_CRITIC, marks=pytest.mark.campaign),
    ],
)
def test_a_new_trainer_goes_on_bit_for_bit(tmp_path: Path, recipe: RecipeBuilder, method: dict[str, Any]) -> None:
    """The checkpoints are written by a thread; rounded policies do not hold the exact weights."""
    setting = recipe(**{"train": TRAIN, "model": {"path": str(tmp_path / "run" / "initial")}} | method)
    run, other = (Run(tmp_path / name, setting) for name in ("run", "other"))
    batches = [(group(10), group(20)), (group(30), group(12))]
    uninterrupted = run.trainer()
    for batch in batches:
        run.feed(*batch)
        other.feed(*batch)
        assert uninterrupted.train_one()
        assert other.trainer().train_one()
    assert same(run.weights(2), other.weights(2))
    assert same(uninterrupted.learner.parameters, other.trainer().learner.parameters)


def test_a_crash_between_files_and_commit_trains_the_batch_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Run(tmp_path / "other", run.recipe)
    for each in (run, other):
        each.feed(group(10), group(20))
        assert each.trainer().train_one()
        each.feed(group(30), group(12))
    with monkeypatch.context() as fault, pytest.raises(KeyboardInterrupt):
        fault.setattr(Batches, "commit", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        run.trainer().train_one()
    assert (run.run_dir / "policies" / "v000002_batch_000002").is_dir()
    assert (run.ledger.policies.latest().version, run.ledger.batches.train_step()) == (1, 1)
    assert run.trainer().train_one()
    assert other.trainer().train_one()
    assert same(run.weights(2), other.weights(2))
    folders = sorted(folder.name for folder in (run.run_dir / "policies").iterdir())
    assert folders == ["v000001_batch_000001", "v000002_batch_000003"]  # what the crash left is gone
    totals = run_totals(run.ledger)
    assert (totals.lost, totals.trained_twice) == (0, 0)


def test_sparse_checkpoints_roll_back_to_the_last_one(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2}))
    trainer = run.trainer()
    for version in range(3):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    third = run.weights(3)
    again = run.trainer()
    assert (run.ledger.batches.train_step(), again.version) == (2, 2)
    assert again.train_one()
    assert run.ledger.policies.latest().version == 4  # 3 is never used again
    assert same(run.weights(4), third)


def sparse_run(tmp_path: Path, recipe: RecipeBuilder, steps: int, **disk: int) -> Run:
    """A run with a checkpoint every second train step, stopped hard after `steps`."""
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2}, disk=disk))
    trainer = run.trainer()
    for version in range(steps):
        run.feed(group(10, version=version), group(20, version=version))
        assert trainer.train_one()
    run.written()
    return run


def test_sparse_checkpoints_and_few_policies_leave_a_way_back(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = sparse_run(tmp_path, recipe, 5, keep_policies=1, min_free_megabytes=1)
    assert Retention(run.recipe.disk, run.ledger, run.run_dir).sweep() is None
    assert run.trainer().version == 4
    assert check_ledger(run.ledger).findings == []
    assert Retention(run.recipe.disk, run.ledger, run.run_dir).sweep() is None
    again = run.trainer()
    assert again.train_one() and again.version == 6


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ("missing", "policies/v000004_batch_000004"),
        ("emptied", "trainer/step_000004_batch_000004"),
        pytest.param("missing", "trainer/step_000004_batch_000004", marks=pytest.mark.campaign),
        pytest.param("emptied", "policies/v000004_batch_000004", marks=pytest.mark.campaign),
    ],
)
def test_damage_to_the_newest_pair_leads_back_to_the_one_before(
    tmp_path: Path, recipe: RecipeBuilder, lost: str, damage: str
) -> None:
    run = sparse_run(tmp_path, recipe, 5)
    if damage == "missing":
        (run.run_dir / lost).rename(run.run_dir / "elsewhere")
    else:
        next((run.run_dir / lost).glob("*.safetensors")).write_bytes(b"")
    trainer = run.trainer()
    assert (trainer.version, run.ledger.batches.train_step()) == (2, 2)
    assert trainer.train_one()
    assert run.ledger.policies.latest().version == 6


def test_a_run_that_ended_well_goes_on_from_its_last_step(tmp_path: Path, recipe: RecipeBuilder) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN | {"train_steps_per_checkpoint": 2, "max_train_steps": 3}))
    run.feed(*(group(arm) for arm in (10, 20, 30, 12, 10, 20)))
    asyncio.run(run_trainer(run.recipe, run.run_dir, asyncio.Event()))
    assert (run.trainer().version, run.ledger.batches.train_step()) == (3, 3)


def test_without_a_checkpoint_and_its_policy_the_error_helps(run: Run) -> None:
    run.feed(group(10), group(20))
    trainer = run.trainer()
    assert trainer.train_one()
    trainer.finish()
    (run.run_dir / "trainer" / "step_000001_batch_000001").rename(run.run_dir / "elsewhere")
    with pytest.raises(CheckpointError, match="at train step 1, and no train step has both") as caught:
        run.trainer()
    assert "start a new run" in caught.value.advice


def test_with_full_durability_files_and_folders_are_synced_before_the_commit(
    tmp_path: Path, recipe: RecipeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, ledger=FULL))
    synced: list[Path] = []
    fsync, commit = os.fsync, Batches.commit

    def recording(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    def checked(
        batches: Batches, batch: Batch, path: str, metrics: dict[str, Any], checkpoints: CheckpointProgress
    ) -> Policy:
        last_sync = {place: number for number, place in enumerate(synced)}
        synced_in_order(last_sync, Path(path))
        return commit(batches, batch, path, metrics, checkpoints)

    def synced_in_order(last_sync: dict[Path, int], folder: Path) -> None:
        writing = folder.with_name(f"{folder.name}.writing")
        files = [last_sync[writing / file.name] for file in folder.iterdir()]
        assert max(files) < last_sync[writing] < last_sync[folder.parent] < last_sync[run.run_dir]

    monkeypatch.setattr(os, "fsync", recording)
    monkeypatch.setattr(Batches, "commit", checked)
    trained(run, 2)
    run.written()
    assert run.ledger.batches.train_step() == 2
    last_sync = {place: number for number, place in enumerate(synced)}
    synced_in_order(last_sync, checkpoint_folder(run.run_dir, 2, 2))


def zero(folder: Path) -> None:
    """What power loss makes of files whose names are on the disk and whose content is not."""
    for file in folder.iterdir():
        file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize(
    "lost",
    [["policies", "trainer"], *(pytest.param([one], marks=pytest.mark.campaign) for one in ("policies", "trainer"))],
)
def test_after_power_loss_a_run_goes_on_from_the_newest_whole_pair(
    tmp_path: Path, recipe: RecipeBuilder, lost: list[str]
) -> None:
    run = Run(tmp_path / "run", recipe(train=TRAIN, ledger=FULL))
    trained(run, 3)
    second = run.weights(2)
    run.written()
    for name in lost:
        zero(max((run.run_dir / name).iterdir()))
    trainer = run.trainer()
    assert (trainer.version, run.ledger.batches.train_step(), run.ledger.policies.latest().version) == (2, 2, 2)
    assert same(second, trainer.learner.model.state_dict())
    (damaged,) = [event.fields for event in run.ledger.events() if event.kind == "recovery_point_damaged"]
    assert damaged["train_step"] == 3
    assert trainer.train_one()  # the groups of the lost step are trained again
    assert (run.ledger.batches.train_step(), run.ledger.policies.latest().version) == (3, 4)
    assert check_ledger(run.ledger, max_lag=2).findings == []
