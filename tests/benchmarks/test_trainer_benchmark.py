"""The contenders of `benchmarks.trainer` take the same train step, and its batches have the shapes that it states."""

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from msgspec.structs import replace

from benchmarks import trainer
from benchmarks.trainer_contenders import bare
from benchmarks.trainer_contenders.base import MICROBATCH_TOKENS, Spent, Turns, Work, new_model
from benchmarks.trainer_contenders.batches import attention_pairs, prepared, tree
from benchmarks.trainer_contenders.ours import recipe_of
from quartet.train.step import Learner
from quartet.types import Batch


def few(batch: Batch, members: int) -> Batch:
    return replace(batch, groups=[replace(group, members=group.members[:members]) for group in batch.groups])


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Return a rollout of 8 turns and three forks of it."""
    return few(tree(32), 4)


@pytest.fixture(scope="module")
def ours(batch: Batch) -> dict[str, torch.Tensor]:
    """Return the gradient that Quartet's trainer computes."""
    learner = Learner(new_model(), recipe_of(MICROBATCH_TOKENS, max_grad_norm=1e9))
    learner.rehearse(learner.plan(prepared(batch), 1, lambda: None), lambda: None)
    return gradients(learner.model)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: weights.grad.clone() for name, weights in model.named_parameters() if weights.grad is not None}


def agree(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        largest = float(gradient.abs().max())
        assert largest > 0, name
        torch.testing.assert_close(found[name], gradient, atol=1e-4 * largest, rtol=1e-3, msg=name)


@pytest.mark.slow
def test_the_bare_loop_and_the_trainer_compute_the_same_gradient(batch: Batch, ours: dict[str, torch.Tensor]) -> None:
    model = new_model()
    (sequences,) = bare.microbatches(prepared(batch), MICROBATCH_TOKENS)
    packed = bare.packed(sequences)
    model.set_attn_implementation(bare.NAME)
    torch.autograd.backward(bare.loss(model, packed) / len(packed.targets_T))
    agree(ours, gradients(model))


class OneTurn(Turns):
    """Turns that end after the first train step, without a benchmark."""

    def __init__(self) -> None:
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def end(self) -> None:
        pass


@pytest.mark.slow
def test_trl_and_the_trainer_compute_the_same_gradient(
    batch: Batch, ours: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    pytest.importorskip("trl", reason="TRL is a dependency of the benchmarks only")
    from transformers import TrainerCallback

    from benchmarks.trainer_contenders.trl import new_trainer

    found: list[dict[str, torch.Tensor]] = []

    class Record(TrainerCallback):
        def on_pre_optimizer_step(
            self, args: Any, state: Any, control: Any, model: torch.nn.Module, **rest: Any
        ) -> None:
            found.append(gradients(model))

    turns = OneTurn()
    trainer = new_trainer(turns, batch, str(tmp_path), Work("tree", 4))
    trainer.args.max_steps, trainer.args.max_grad_norm = 1, 1e9
    trainer.add_callback(Record())
    trainer.train()
    assert turns.begun == 1
    (theirs,) = found
    agree(ours, theirs)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--batches", "tree,trees", "'trees'"),
        ("--rollouts", "40", "multiple of 32"),
        ("--rollouts", "0", "multiple of 32"),
    ],
)
def test_the_benchmark_refuses_sizes_and_names_that_it_does_not_have(option: str, value: str, said: str) -> None:
    result = CliRunner().invoke(trainer.main, [option, value])
    assert result.exit_code == 2 and said in result.output


def test_the_branches_of_a_tree_share_more_than_five_sixths() -> None:
    branches = [branch for branch in prepared(tree(64)) if branch.group_index == 1]
    for place, branch in enumerate(branches[1:], 1):
        shared = max(int((branch.ids_L == other.ids_L).cumprod().sum()) for other in branches[:place])
        assert shared >= 0.86 * branch.num_tokens
        assert branch.trained_L.sum() > 0 and not branch.trained_L[:shared].any()


def test_pairs_count_what_branches_share_once() -> None:
    first, second = prepared(tree(32))[:2]
    shared = int((first.ids_L == second.ids_L).cumprod().sum())
    whole, before = first.num_tokens * (first.num_tokens + 1) // 2, shared * (shared + 1) // 2
    assert attention_pairs([first, second]) == 2 * whole - before


def test_ratios_are_taken_within_a_repetition() -> None:
    ours, others = [Spent(1.0, 90), Spent(2.0, 90), Spent(4.0, 90)], [Spent(3.0, 100), Spent(4.0, 100), Spent(4.0, 100)]
    found = trainer.ratios({"variable": {"trl": others, "bare": others, "bare_faster_library": others, "ours": ours}})
    assert found["ratio_to_trl"] == 2.0
    assert found["ratio_to_bare_loop_spread"] == {"lowest": 1.0, "highest": 3.0}
    assert found["memory_ratio_to_bare_loop"] == pytest.approx(0.9)
    assert "ratio_tree_to_leaves" not in found


def test_contenders_that_are_left_out_have_no_ratio() -> None:
    found = trainer.ratios({"variable": {"trl": [Spent(3.0, 100)], "ours": [Spent(1.0, 90)]}})
    assert found == {"ratio_to_trl": 3.0, "ratio_to_trl_spread": {"lowest": 3.0, "highest": 3.0}}
