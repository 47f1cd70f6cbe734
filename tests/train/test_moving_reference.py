"""Moving reference: replaced or averaged after some train steps, part of a checkpoint, reset with the optimizer."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from msgspec.structs import replace
from test_step import nothing, trajectories
from tiny_batches import make_batch, make_model

from quartet.config import Recipe
from quartet.ledger.checkpoints import checkpoint_folder
from quartet.train.assign import credits_of
from quartet.train.checkpoint.files import load_checkpoint, take_snapshot, write_checkpoint
from quartet.train.step import Learner
from quartet.train.train_batch import train_batch

RecipeBuilder = Callable[..., Recipe]


def learner_of(build: RecipeBuilder, **reference: float) -> Learner:
    setting = build(loss={"terms": ["ppo_clip", "kl"]}, reference=reference, train={"learning_rate": 0.01})
    return Learner(make_model(), setting, {"reference": make_model()})


def train(learner: Learner, train_step: int) -> dict[str, float]:
    credits = credits_of(learner.recipe)
    batch = replace(make_batch(trajectories(seed=train_step)), train_step=train_step)
    return train_batch(batch, learner, learner.recipe, credits, progress=nothing, phases=lambda _: nullcontext())[1]


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_fixed_reference_stays_where_the_run_started(recipe: RecipeBuilder) -> None:
    learner = learner_of(recipe)
    for train_step in (1, 2):
        train(learner, train_step)
    assert torch.equal(weights(learner.frozen["reference"]), weights(make_model()))
    assert not learner.unpublished


def test_a_replaced_reference_is_the_policy_after_every_second_train_step(recipe: RecipeBuilder) -> None:
    """So the divergence from it is 0 at the next step, and only there."""
    learner = learner_of(recipe, train_steps_per_move=2)
    divergences = []
    for train_step in range(1, 5):
        divergences.append(train(learner, train_step)["reference_kl_nats"])
        same = torch.equal(weights(learner.frozen["reference"]), weights(learner.model))
        assert same is (train_step % 2 == 0)
    assert [abs(divergence) < 1e-6 for divergence in divergences] == [True, False, True, False]


def test_an_averaged_reference_is_the_exponential_mean_of_the_policies(recipe: RecipeBuilder) -> None:
    learner = learner_of(recipe, train_steps_per_move=1, move_share=0.25)
    expected = weights(make_model())
    for train_step in (1, 2, 3):
        train(learner, train_step)
        expected = 0.75 * expected + 0.25 * weights(learner.model)
        torch.testing.assert_close(weights(learner.frozen["reference"]), expected)


def test_a_reference_with_one_move_is_the_policy_of_that_train_step_for_the_rest(recipe: RecipeBuilder) -> None:
    learner = learner_of(recipe, train_steps_per_move=2, max_moves=1)
    policies = []
    for train_step in range(1, 6):
        train(learner, train_step)
        policies.append(weights(learner.model))
    assert torch.equal(weights(learner.frozen["reference"]), policies[1])


def test_a_move_that_a_train_step_without_an_optimizer_step_missed_is_made_at_the_next(recipe: RecipeBuilder) -> None:
    learner = learner_of(recipe, train_steps_per_move=2, max_moves=1)
    train(learner, 1)
    policies = {}
    for train_step in (3, 4):  # step 2 had no trained tokens
        train(learner, train_step)
        policies[train_step] = weights(learner.model)
    assert torch.equal(weights(learner.frozen["reference"]), policies[3])


def resumed(trained: Learner, train_step: int, folder: Path) -> Learner:
    """Return a learner of another process that continues from a checkpoint of `trained`."""
    write_checkpoint(folder, take_snapshot(trained, train_step))
    setting = trained.recipe
    other = Learner(make_model(), setting, {"reference": make_model()})
    other.model.load_state_dict(trained.model.state_dict())
    assert load_checkpoint(folder, other) == train_step
    return other


def test_a_missed_move_is_made_after_a_restart(recipe: RecipeBuilder, tmp_path: Path) -> None:
    learner = learner_of(recipe, train_steps_per_move=2, max_moves=1)
    train(learner, 1)
    learner = resumed(learner, 2, tmp_path / "state")  # step 2 had no trained tokens
    train(learner, 3)
    assert torch.equal(weights(learner.frozen["reference"]), weights(learner.model))


def test_a_missed_first_move_is_made(recipe: RecipeBuilder) -> None:
    learner = learner_of(recipe, train_steps_per_move=1, max_moves=1)
    train(learner, 2)  # step 1 had no trained tokens
    assert torch.equal(weights(learner.frozen["reference"]), weights(learner.model))


def test_a_roll_back_makes_no_further_move_than_the_checkpoint_leaves(recipe: RecipeBuilder, tmp_path: Path) -> None:
    learner = learner_of(recipe, train_steps_per_move=2, max_moves=1)
    for train_step in (1, 2):
        train(learner, train_step)
    moved = weights(learner.frozen["reference"])
    write_checkpoint(tmp_path / "state", take_snapshot(learner, 2))
    for train_step in (3, 4):
        train(learner, train_step)
    load_checkpoint(tmp_path / "state", learner)
    assert learner.moving_reference is not None and learner.moving_reference.followed == 2
    for train_step in (3, 4):
        train(learner, train_step)
    assert torch.equal(weights(learner.frozen["reference"]), moved)


def test_a_checkpoint_of_an_older_version_has_no_missed_move(recipe: RecipeBuilder, tmp_path: Path) -> None:
    learner = learner_of(recipe, train_steps_per_move=2, max_moves=1)
    snapshot = take_snapshot(learner, 2)
    numbers = replace(snapshot.numbers, reference_followed=None)
    write_checkpoint(tmp_path / "state", snapshot._replace(numbers=numbers))
    load_checkpoint(tmp_path / "state", learner)
    train(learner, 3)
    assert torch.equal(weights(learner.frozen["reference"]), weights(make_model()))


def test_a_move_is_made_again_after_a_roll_back(recipe: RecipeBuilder) -> None:
    learner = learner_of(recipe, train_steps_per_move=2)
    for train_step in (1, 2, 3, 2):
        train(learner, train_step)
    assert torch.equal(weights(learner.frozen["reference"]), weights(learner.model))


def test_a_weight_changes_with_the_train_step(recipe: RecipeBuilder) -> None:
    """The policy's term is gone after step 1; then the gradient is that of the reference alone."""
    terms = [{"name": "ppo_clip", "weight_points": [(1, 1.0), (2, 0.0)]}, {"name": "kl", "weight": 0.0}]
    learner = Learner(make_model(), recipe(loss={"terms": terms}), {"reference": make_model()})
    norms = [train(learner, train_step)["gradient_norm"] for train_step in (1, 2)]
    assert norms[0] > 0 and norms[1] == 0


def test_a_resume_with_a_moving_reference_is_bit_exact(recipe: RecipeBuilder, tmp_path: Path) -> None:
    trained, resumed = (learner_of(recipe, train_steps_per_move=1, move_share=0.25) for _ in range(2))
    train(trained, 1)
    folder = checkpoint_folder(tmp_path, 1, 1)
    write_checkpoint(folder, take_snapshot(trained, 1))
    resumed.model.load_state_dict(trained.model.state_dict())
    load_checkpoint(folder, resumed)
    for learner in (trained, resumed):
        train(learner, 2)
    assert all(torch.equal(value, resumed.parameters[name]) for name, value in trained.parameters.items())
    assert any(name.startswith("reference.") for name in trained.parameters)
    trained.model.load_state_dict(make_model().state_dict())
    trained.reset()
    assert torch.equal(weights(trained.frozen["reference"]), weights(make_model()))
