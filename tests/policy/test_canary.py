"""The canary proves which weights are loaded."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from quartet.errors import CheckpointError
from quartet.policy.canary import (
    CANARY_FILE,
    Canary,
    fixed_sequence,
    has_canary,
    measure_canary,
    write_canary,
)
from quartet.policy.load import LoadedPolicy, load_model
from quartet.policy.weights import cast_copy, read_weights, swap_weights


def test_fixed_sequence_is_fixed():
    assert fixed_sequence(1000, 4) == fixed_sequence(1000, 256)[:4]
    assert fixed_sequence(2048)[:3] == [233, 998, 1135]
    assert len(set(fixed_sequence(2048))) > 200


def test_the_same_weights_have_no_gap_and_others_do(policy: LoadedPolicy, policy_folder: Path, tmp_path: Path):
    assert not has_canary(tmp_path)
    write_canary(tmp_path, policy.model, [fixed_sequence(policy.model.config.vocab_size), [4, 5, 6], [7]])
    assert has_canary(tmp_path)
    assert measure_canary(tmp_path, policy.model)[0] < 1e-5
    weights = read_weights(policy_folder)
    weights["model.norm.weight"] = weights["model.norm.weight"] * 1.05
    swap_weights(policy.model, weights)
    assert measure_canary(tmp_path, policy.model)[0] > 1e-3


def test_the_gap_in_bfloat16_is_a_root_mean_square_in_which_unlikely_tokens_count_less() -> None:
    """A tenth of a log-prob below -2.5 nats counts as 0.25 nats; in float32 the largest difference counts whole."""
    canary = Canary([[1, 2, 3, 4, 5]], [torch.tensor([-1.0, -2.5, -20.0, -1.0])])
    unlikely, likely = torch.tensor([-1.0, -2.5, -22.0, -1.0]), torch.tensor([-1.2, -2.5, -20.0, -1.0])
    assert canary.gap([unlikely]) == pytest.approx(2.0)
    assert canary.gap([unlikely], reduced=True) == pytest.approx(0.25 / 2)
    assert canary.gap([likely]) == pytest.approx(0.2)
    assert canary.gap([likely], reduced=True) == pytest.approx(0.2 / 2)
    assert math.isnan(canary.gap([torch.tensor([-1.0, float("nan"), -20.0, -1.0])], reduced=True))
    assert math.isnan(canary.gap([torch.tensor([-1.0, float("nan"), -20.0, -1.0])]))


def test_a_wrong_vision_tower_counts_as_much_as_wrong_texts() -> None:
    """Four tokens behind the screenshot are not diluted by the many without it."""
    right, seen = torch.full((400,), -1.0), torch.full((4,), -1.0)
    canary = Canary([list(range(401))], [right], seen)
    assert canary.gap([right], seen - 0.2, reduced=True) == pytest.approx(0.2)
    assert canary.gap([right - 0.1], seen, reduced=True) == pytest.approx(0.1)


def test_an_engine_in_bfloat16_may_be_as_far_off_as_the_trainer_in_bfloat16(
    policy: LoadedPolicy, policy_folder: Path, tmp_path: Path
) -> None:
    """Large activations are rounded far, and other weights are still found; a float32 engine has no such excuse."""
    enlarge_norms(policy.model, 10.0)
    reduced = cast_copy(policy.model, torch.bfloat16)
    ids = [fixed_sequence(policy.model.config.vocab_size)]
    write_canary(tmp_path, policy.model, ids)
    gap, unexplained = measure_canary(tmp_path, reduced)
    assert gap == unexplained > 0.1, "not explained without the trainer's scores"
    write_canary(tmp_path, policy.model, ids, reduced=reduced)
    assert measure_canary(tmp_path, reduced) == (gap, pytest.approx(0, abs=1e-5))
    assert measure_canary(tmp_path, policy.model) == (pytest.approx(0, abs=1e-5),) * 2
    for name, parameter in reduced.named_parameters():
        if "norm" in name:
            parameter.data.mul_(1.2)
    assert measure_canary(tmp_path, reduced)[1] > 0.1, "weights of another train step"
    assert measure_canary(tmp_path, load_model(policy_folder))[1] > 1e-3


def test_the_nearer_scores_count_in_bfloat16_only() -> None:
    """An engine that computes better than the trainer's copy in bfloat16 is right too; a score that is NaN is not."""
    exact, rounded = torch.tensor([-1.0, -1.0]), torch.tensor([-1.3, -1.3])
    canary = Canary([[1, 2, 3]], [exact], reduced=Canary([[1, 2, 3]], [rounded]))
    assert canary.unexplained_gap([exact + 0.02], reduced=True) == pytest.approx(0.02)
    assert canary.unexplained_gap([rounded - 0.02], reduced=True) == pytest.approx(0.02)
    assert canary.unexplained_gap([rounded]) == pytest.approx(0.3)
    assert math.isnan(canary.unexplained_gap([torch.tensor([-1.0, float("nan")])], reduced=True))


def enlarge_norms(model: PreTrainedModel, times: float) -> None:
    """Multiply the weights of all norms, so that activations and logits are large."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.mul_(times)


def test_stored_numbers_are_log_probs(policy: LoadedPolicy, tmp_path: Path):
    ids = [4, 8, 15, 16]
    write_canary(tmp_path, policy.model, [ids])
    with torch.no_grad():
        logprobs = policy.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = [logprobs[position, ids[position + 1]].item() for position in range(3)]
    assert load_file(tmp_path / CANARY_FILE)["logprobs"].tolist() == pytest.approx(expected, abs=1e-5)


def test_it_stays_small(policy: LoadedPolicy, tmp_path: Path):
    with pytest.raises(ValueError, match="512"):
        write_canary(tmp_path, policy.model, [[1] * 513])


@pytest.mark.parametrize(
    "damaged",
    [
        {"lengths": torch.tensor([4])},
        {"lengths": torch.tensor([3, 0])},
        {"lengths": torch.tensor([], dtype=torch.int64)},
        {"lengths": torch.tensor([[3]])},
        {"token_ids": torch.tensor([4, 5])},
        {"token_ids": torch.tensor([4, -1, 5])},
        {"token_ids": torch.tensor([4.0, 5.0, 6.0])},
        {"logprobs": torch.zeros(3)},
        {"logprobs": torch.zeros(1)},
        {"reduced_logprobs": torch.zeros(1)},
    ],
)
def test_tensors_that_do_not_belong_together_are_damage(
    damaged: dict[str, torch.Tensor], policy: LoadedPolicy, tmp_path: Path
):
    write_canary(tmp_path, policy.model, [[4, 5, 6]])
    save_file(load_file(tmp_path / CANARY_FILE) | damaged, tmp_path / CANARY_FILE)
    with pytest.raises(CheckpointError, match="do not match"):
        measure_canary(tmp_path, policy.model)


def test_damage_is_named(policy: LoadedPolicy, tmp_path: Path):
    write_canary(tmp_path, policy.model, [[4, 5, 6]])
    file = tmp_path / CANARY_FILE
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="canary"):
        measure_canary(tmp_path, policy.model)
