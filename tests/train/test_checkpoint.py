"""Checkpoints: bit-exact resume, and damage that is named instead of loaded."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_step import branches_of, nothing, trajectories
from tiny_batches import make_model

from quartet.config import Recipe
from quartet.errors import CheckpointError
from quartet.train.checkpoint import find_checkpoint, load_checkpoint, prune_checkpoints, save_checkpoint
from quartet.train.step import Learner

RecipeBuilder = Callable[..., Recipe]


def train(learner: Learner, train_step: int) -> None:
    branches = branches_of(trajectories(seed=train_step), learner.recipe)
    learner.update(learner.plan(branches, train_step, nothing), nothing)


def weights(learner: Learner) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in learner.model.parameters()]


@pytest.fixture
def trained(recipe: RecipeBuilder) -> Learner:
    learner = Learner(make_model(), recipe(train={"warmup_steps": 3}))
    train(learner, 1)
    return learner


def test_resume_is_bit_exact(trained: Learner, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, trained, 1)
    resumed = Learner(make_model(seed=5), trained.recipe)
    resumed.model.load_state_dict(trained.model.state_dict())
    assert load_checkpoint(folder, resumed) == 1
    train(trained, 2)
    train(resumed, 2)
    assert all(torch.equal(a, b) for a, b in zip(weights(trained), weights(resumed), strict=True))


def test_forgetting_the_moments_would_show(trained: Learner) -> None:
    """The test above can fail: without the checkpoint the second step differs."""
    forgetful = Learner(make_model(), trained.recipe)
    forgetful.model.load_state_dict(trained.model.state_dict())
    train(trained, 2)
    train(forgetful, 2)
    assert not all(torch.equal(a, b) for a, b in zip(weights(trained), weights(forgetful), strict=True))


def test_random_state_goes_along(trained: Learner, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, trained, 1)
    expected = torch.rand(3)
    load_checkpoint(folder, trained)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "checksums.json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_damage_names_the_file(trained: Learner, tmp_path: Path, name: str, damage: str) -> None:
    file = save_checkpoint(tmp_path, trained, 1) / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[: len(content) // 2] if damage == "cut" else bytes([content[0] ^ 1]) + content[1:])
    before = weights(trained)
    with pytest.raises(CheckpointError, match=r"state|checksums") as caught:
        load_checkpoint(file.parent, trained)
    assert str(file.parent) in caught.value.what
    assert caught.value.advice
    assert all(torch.equal(a, b) for a, b in zip(before, weights(trained), strict=True))


def test_a_checkpoint_of_another_model_is_refused(trained: Learner, tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, trained, 1)
    del trained.model.model.layers[1]
    with pytest.raises(CheckpointError, match="another model"):
        load_checkpoint(folder, Learner(trained.model, trained.recipe))


def test_saving_again_replaces_what_a_crash_left(trained: Learner, tmp_path: Path) -> None:
    (tmp_path / "step_000001").mkdir()
    (tmp_path / "step_000001.writing").mkdir()
    assert load_checkpoint(save_checkpoint(tmp_path, trained, 1), trained) == 1
    assert [folder.name for folder in tmp_path.iterdir()] == ["step_000001"]


def test_finding_the_checkpoint_of_a_step(trained: Learner, tmp_path: Path) -> None:
    for step in (2, 4):
        save_checkpoint(tmp_path, trained, step)
    assert find_checkpoint(tmp_path, 4, 1) == tmp_path / "step_000004"
    assert find_checkpoint(tmp_path, 5, 2) == tmp_path / "step_000004"
    assert find_checkpoint(tmp_path, 2, 2) == tmp_path / "step_000002"  # step 4 was never committed
    assert find_checkpoint(tmp_path, 1, 2) is None
    assert find_checkpoint(tmp_path, 0, 1) is None
    with pytest.raises(CheckpointError, match="train step 5"):
        find_checkpoint(tmp_path, 5, 1)


def test_pruning_keeps_the_newest(trained: Learner, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, trained, step)
    (tmp_path / "step_000004.writing").mkdir()
    prune_checkpoints(tmp_path, keep=2)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["step_000002", "step_000003"]
