"""On-policy distillation with a real teacher: its pass, its loading, and a student that becomes alike."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from test_step import branches_of, nothing, trajectories
from tiny_batches import make_batch, make_call, make_model, make_tokenizer, make_trajectory
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from quartet.config import Recipe
from quartet.errors import ConfigError
from quartet.policy.make_vision import make_vision_policy
from quartet.policy.save import save_policy
from quartet.recipe.file import load_recipe
from quartet.registry import build
from quartet.train.frozen import load_frozen
from quartet.train.packing.branches import pack_batch
from quartet.train.step import Learner
from quartet.train.train_batch import credited

RecipeBuilder = Callable[..., Recipe]


def test_the_teacher_s_pass_is_its_log_probs_at_the_sampled_temperature(recipe: RecipeBuilder) -> None:
    teacher = make_model(seed=1)
    branches = branches_of(trajectories(), recipe())
    passes = Learner(make_model(), recipe(), {"teacher": teacher}).passes({"teacher"}, branches, nothing)
    for branch, found in zip(branches, passes["teacher"], strict=True):
        with torch.no_grad():
            logits_LV = teacher(input_ids=torch.from_numpy(branch.ids_L)[None]).logits[0]
        trained = np.flatnonzero(branch.trained_L)
        scaled = (logits_LV[trained - 1] / torch.from_numpy(branch.temperatures_L[trained])[:, None]).log_softmax(-1)
        expected = scaled.gather(1, torch.from_numpy(branch.ids_L[trained])[:, None])[:, 0]
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_student_becomes_like_its_teacher_without_any_reward(recipe: RecipeBuilder) -> None:
    """KL(student | teacher) of the next token falls to a third within twelve train steps of 32 samples."""
    credit = {"name": "distillation", "teacher": "/teacher"}
    setting = recipe(train={"learning_rate": 0.02}, credit=credit, filters=[])
    teacher, student = make_model(seed=1), make_model()
    learner, part = Learner(student, setting, {"teacher": teacher}), build(setting.credit)
    prompt, random = list(range(10, 20)), torch.Generator().manual_seed(0)

    def logprobs_of(model: torch.nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)

    def divergence() -> float:
        ours_V = logprobs_of(student)
        return float((ours_V.exp() * (ours_V - logprobs_of(teacher))).sum())

    before = divergence()
    for train_step in range(1, 13):
        logprobs_V = logprobs_of(student)
        drawn = torch.multinomial(logprobs_V.exp(), 32, replacement=True, generator=random).tolist()
        calls = [make_call(prompt, [token], logprobs=[float(logprobs_V[token])]) for token in drawn]
        batch = make_batch([[make_trajectory([call], 0.0)] for call in calls])
        packed = credited(batch, pack_batch(batch, 0), learner, [part], nothing)
        learner.update(learner.plan(packed.branches, train_step, nothing), nothing)
    assert before > 0.1
    assert divergence() < before / 3


def test_a_teacher_is_named_by_its_folder_and_loaded_beside_the_policy(tmp_path: Path) -> None:
    for name, seed in (("start", 0), ("teacher", 1)):
        save_policy(make_model(seed), make_tokenizer(), tmp_path / name)
    file = tmp_path / "recipe.toml"
    file.write_text(
        'name = "x"\nfilters = []\n[model]\npath = "start"\n[env]\nname = "bandit"\n'
        '[credit]\nname = "distillation"\nteacher = "teacher"\n'
    )
    recipe = load_recipe(file)
    frozen = load_frozen(recipe, [build(recipe.credit)], tmp_path / "start")
    assert frozen.keys() == {"teacher"}
    assert torch.equal(frozen["teacher"].lm_head.weight, make_model(1).lm_head.weight)


def test_a_teacher_with_another_vocabulary_is_refused(tmp_path: Path, recipe: RecipeBuilder) -> None:
    words = WordLevel({str(number + 1): number for number in range(50)}, unk_token="1")
    save_policy(make_model(), make_tokenizer(), tmp_path / "start")
    other = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    save_policy(make_model(), other, tmp_path / "teacher")
    setting = recipe(credit={"name": "distillation", "teacher": str(tmp_path / "teacher")}, filters=[])
    with pytest.raises(ConfigError, match="another vocabulary"):
        load_frozen(setting, [build(setting.credit)], tmp_path / "start")


@pytest.mark.parametrize("reader", ["start", "teacher"])
def test_a_teacher_that_reads_other_inputs_than_the_policy_is_refused(
    tmp_path: Path, recipe: RecipeBuilder, reader: str
) -> None:
    for name in ("start", "teacher"):
        (tmp_path / name).mkdir()
        kind = "qwen3_vl" if name == reader else "qwen3"
        (tmp_path / name / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    setting = recipe(credit={"name": "distillation", "teacher": str(tmp_path / "teacher")}, filters=[])
    with pytest.raises(ConfigError, match=rf"{reader} reads pictures and .* reads only text"):
        load_frozen(setting, [build(setting.credit)], tmp_path / "start")


def test_teacher_must_make_the_same_patches(tmp_path: Path, recipe: RecipeBuilder) -> None:
    for name, patch_size in (("teacher", 16), ("start", 8)):
        make_vision_policy(["red"], tmp_path / name, hidden_size=16, num_heads=1, patch_size=patch_size)
    setting = recipe(credit={"name": "distillation", "teacher": str(tmp_path / "teacher")}, filters=[])
    with pytest.raises(ConfigError, match="other patches of the same picture"):
        load_frozen(setting, [build(setting.credit)], tmp_path / "start")
