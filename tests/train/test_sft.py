"""Supervised fine-tuning: the loss sees responses only, a run is reproducible, it learns, and bad data is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from quartet.cli import cli
from quartet.config import Recipe
from quartet.errors import CheckpointError, ConfigError, QuartetError
from quartet.policy.examples import Example, TokenBatch, one_epoch, pad, read_chats
from quartet.policy.load import load_policy
from quartet.policy.make import make_policy
from quartet.policy.renderer import Renderer
from quartet.policy.save import save_policy
from quartet.recipe.file import parse_recipe, to_toml
from quartet.train import sft
from quartet.train.optimizer import FINAL_LEARNING_RATE_SHARE
from quartet.train.sft import (
    WARMUP_STEPS,
    SftStep,
    learned_logits,
    learning_rate,
    run_sft,
)
from quartet.train.step import NonFiniteError
from tests.devices import DEVICES

pytestmark = pytest.mark.slow

NAMES = ("north", "south", "east", "west")
CHATS = [
    ([f"Go {name}.\n" + "\n".join(f"button {n} [{i}]" for i, n in enumerate(NAMES, 1))], [f"click {name} [{i}]"])
    for i, name in enumerate(NAMES, 1)
]


def line(users: list[str], assistants: list[str]) -> str:
    turns = [
        {"role": role, "content": text}
        for user, assistant in zip(users, assistants, strict=True)
        for role, text in (("user", user), ("assistant", assistant))
    ]
    return json.dumps({"messages": turns, "family": "compass"})


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    torch.set_num_threads(1)
    texts = [text for users, assistants in CHATS for text in (*users, *assistants)]
    make_policy(texts, tmp_path / "start", vocab_size=600, hidden_size=32, num_layers=2, num_heads=2)
    (tmp_path / "demos.jsonl").write_text("\n".join(line(*chat) for chat in CHATS) + "\n")
    sft = {
        "data": str(tmp_path / "demos.jsonl"),
        "output": str(tmp_path / "tuned"),
        "exercises": "recipes.miniwob.copying:CopyingExercises",
        "exercise_steps": 3,
        "steps": 5,
        "tokens_per_batch": 256,
        "learning_rate": 5e-3,
    }
    data = {"name": "t", "model": {"path": str(tmp_path / "start")}, "env": {"name": "bandit"}, "sft": sft}
    return parse_recipe(data, source="test")


def tuned(recipe: Recipe, **settings: object) -> Recipe:
    return parse_recipe(recipe.model_dump() | {"sft": recipe.sft.model_dump() | settings}, source="test")


def test_responses_with_their_end_are_learned_and_nothing_else(recipe: Recipe, tmp_path: Path):
    tokenizer = load_policy(recipe.model.path).tokenizer
    (tmp_path / "two.jsonl").write_text(line(["Go north.", "Go <|end|> on."], ["click north [1]", "click east [2]"]))
    (example,) = read_chats(tmp_path / "two.jsonl", tokenizer)
    learned = [token for token, flag in zip(example.token_ids, example.learned, strict=True) if flag]
    assert tokenizer.decode(learned) == "click north [1]<|end|>click east [2]<|end|>"
    whole = "<|user|>Go north.<|end|><|assistant|>click north [1]<|end|><|user|>Go <|end|> on.<|end|><|assistant|>"
    assert tokenizer.decode(example.token_ids) == whole + "click east [2]<|end|>"
    assert tokenizer.convert_ids_to_tokens(example.token_ids).count("<|end|>") == 4


def test_fields_that_other_tools_leave_empty_are_none(recipe: Recipe, tmp_path: Path):
    """A table of chats, some of which have tools, has null for the others."""
    tokenizer = load_policy(recipe.model.path).tokenizer
    chat = json.loads(line(["Go north."], ["click north [1]"]))
    (tmp_path / "plain.jsonl").write_text(json.dumps(chat))
    messages = [message | {"name": None} for message in chat["messages"]]
    (tmp_path / "nulls.jsonl").write_text(json.dumps({"messages": messages, "tools": None}))
    plain, nulls = (read_chats(tmp_path / name, tokenizer) for name in ("plain.jsonl", "nulls.jsonl"))
    assert plain == nulls


def test_a_prompt_is_what_the_rollout_service_sends(recipe: Recipe):
    tokenizer = load_policy(recipe.model.path).tokenizer
    example = read_chats(recipe.sft.data, tokenizer)[2]
    prompt = [token for token, flag in zip(example.token_ids, example.learned, strict=True) if not flag]
    assert prompt == Renderer(tokenizer).start(CHATS[2][0][0])


def test_the_loss_equals_a_full_forward_pass(recipe: Recipe):
    model = load_policy(recipe.model.path).model
    examples = [Example([7, 8, 9, 10, 11], [False, False, True, False, True]), Example([5, 6], [False, True])]
    logits, targets = learned_logits(model, pad(examples, pad_id=0))
    losses = []
    for ids, learned in examples:
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        losses += [-logprobs[place - 1, ids[place]] for place in range(1, len(ids)) if learned[place]]
    assert cross_entropy(logits, targets).item() == pytest.approx(torch.stack(losses).mean().item(), abs=1e-5)


def test_an_epoch_holds_every_example_once_in_full_batches():
    rng = np.random.default_rng(0)
    examples = [Example([number] * int(rng.integers(1, 40)), [True]) for number in range(1, 200)]
    batches = list(one_epoch(examples, 256, pad_id=0, rng=rng))
    assert sorted(row[0] for batch in batches for row in batch.ids_BT.tolist()) == list(range(1, 200))
    assert all(batch.ids_BT.numel() <= 256 for batch in batches)
    padding = sum(int((batch.ids_BT == 0).sum()) for batch in batches)
    assert padding < 0.1 * sum(batch.ids_BT.numel() for batch in batches)


def test_the_same_seed_gives_the_same_weights(recipe: Recipe, tmp_path: Path):
    def weights(name: str, seed: int) -> dict[str, torch.Tensor]:
        run = tuned(recipe, output=str(tmp_path / name)).model_copy(update={"seed": seed})
        run_sft(run)
        return load_policy(tmp_path / name).model.state_dict()

    first, again, other = weights("first", 0), weights("again", 0), weights("other", 1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_it_learns_its_demonstrations(recipe: Recipe):
    steps: list[SftStep] = []
    summary = run_sft(tuned(recipe, steps=150), on_step=steps.append)
    assert summary["accuracy"] > 0.95
    assert summary["stopped_by"] == "steps"
    assert (summary["exercise_steps"], summary["demonstration_steps"], summary["examples"]) == (3, 150, 4)
    assert [step.phase for step in steps] == ["exercises"] * 3 + ["demonstrations"] * 150
    json.dumps(summary)


def test_exercises_are_rehearsed_among_demonstrations(recipe: Recipe):
    steps: list[SftStep] = []
    run_sft(tuned(recipe, exercise_steps=1, steps=5, steps_per_rehearsal=2), on_step=steps.append)
    e, d = "exercises", "demonstrations"
    assert [step.phase for step in steps] == [e, d, d, e, d, d, e, d]
    assert steps[-1].total_steps == 8


def test_without_demonstrations_only_exercises_are_trained(recipe: Recipe):
    steps: list[SftStep] = []
    summary = run_sft(tuned(recipe, data="", steps=0, exercise_steps=4, steps_per_rehearsal=1), on_step=steps.append)
    assert [step.phase for step in steps] == ["exercises"] * 4
    assert (summary["examples"], summary["stopped_by"], steps[0].total_steps) == (0, "steps", 4)


@pytest.mark.parametrize("settings", [{"exercise_steps": 4, "steps": 5}, {"exercise_steps": 0, "steps": 0}])
def test_forgotten_demonstrations_are_missed(recipe: Recipe, settings: dict[str, int]):
    with pytest.raises(ConfigError, match=r"sft\.data is empty"):
        run_sft(tuned(recipe, data="", **settings))


def test_the_learning_rate_rises_once_and_falls_in_each_phase(recipe: Recipe):
    sft = tuned(
        recipe, exercise_steps=100, exercise_learning_rate=1.0, steps=50, learning_rate=3.0, max_seconds=200.0
    ).sft
    assert learning_rate(sft, 1, 0, 0.0) == pytest.approx((1 / WARMUP_STEPS) * (1 - 0.009))
    assert learning_rate(sft, 50, 0, 0.0) == pytest.approx(1 - 0.9 / 2)
    assert learning_rate(sft, 100, 0, 0.0) == pytest.approx(FINAL_LEARNING_RATE_SHARE)
    assert learning_rate(sft, 101, 0, 0.0) == 3.0
    assert learning_rate(sft, 151, 50, 0.0) == pytest.approx(3.0 * FINAL_LEARNING_RATE_SHARE)
    by_clock = sft.model_copy(update={"steps": 0})
    assert learning_rate(by_clock, 101, 7, 100.0) == pytest.approx(3.0 * (1 - 0.9 / 2))


def test_without_a_number_of_steps_the_clock_decides(recipe: Recipe):
    steps: list[SftStep] = []
    summary = run_sft(tuned(recipe, exercise_steps=0, steps=0, max_seconds=0.5), on_step=steps.append)
    assert summary["stopped_by"] == "max_seconds"
    assert summary["train_seconds"] > 0.5
    assert len(steps) > 1
    assert steps[0].total_steps == 0


def test_time_ends_it_and_the_policy_is_written(recipe: Recipe):
    summary = run_sft(tuned(recipe, steps=100_000, max_seconds=0.01))
    assert summary["stopped_by"] == "max_seconds"
    load_policy(recipe.sft.output)


@pytest.mark.parametrize(
    "bad",
    [
        '{"messages": [',
        '{"message": []}',
        '{"messages": []}',
        '{"messages": [{"role": "user", "content": "hello"}]}',
        '{"messages": [{"role": "assistant", "content": "hello"}]}',
        '{"messages": [{"role": "user", "content": 3}, {"role": "assistant", "content": "x"}]}',
    ],
)
def test_a_bad_line_is_named(bad: str, recipe: Recipe):
    path = Path(recipe.sft.data)
    path.write_text(path.read_text() + "\n" + bad + "\n")
    with pytest.raises(ConfigError, match=r"demos\.jsonl:6: "):
        run_sft(recipe)


@pytest.mark.parametrize(
    ("text", "says"), [("", "has no chat: it is empty"), ("\n \n\n", "has no chat"), ("{}", r"x\.jsonl:1")]
)
def test_wrong_data_ends_the_command_before_the_model_is_loaded(
    recipe: Recipe, tmp_path: Path, monkeypatch, text, says
):
    monkeypatch.setattr(sft, "load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=says):
        run_sft(tuned(recipe, data=str(tmp_path / "x.jsonl")))


def test_missing_data_is_named(recipe: Recipe, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no demonstrations at .*gone\.jsonl"):
        run_sft(tuned(recipe, data=str(tmp_path / "gone.jsonl")))
    with pytest.raises(ConfigError, match=r"sft\.output is empty"):
        run_sft(tuned(recipe, output=""))


@pytest.mark.parametrize(
    ("inside", "error", "says"), [("policy", ConfigError, "cannot write"), ("", CheckpointError, "other than a policy")]
)
def test_an_output_that_cannot_be_is_refused_before_the_first_step(
    inside: str, error: type[QuartetError], says: str, recipe: Recipe, tmp_path: Path
):
    steps: list[SftStep] = []
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(error, match=says):
        run_sft(tuned(recipe, output=str(tmp_path / "notes" / inside)), on_step=steps.append)
    assert steps == []


def with_parts(recipe: Recipe, **parts: object) -> Recipe:
    return parse_recipe(recipe.model_dump() | parts, source="test")


def test_an_output_that_is_a_policy_of_the_recipe_or_of_a_run_is_refused_before_the_first_step(
    recipe: Recipe, tmp_path: Path
):
    """Its weights would be lost, and with those of a base also the meaning of its adapters."""
    start, run, adapter = recipe.model.path, tmp_path / "run", tmp_path / "adapter"
    config = {"base_model_name_or_path": start, "r": 1, "lora_alpha": 1.0, "peft_type": "LORA"}
    for folder in (run, adapter):
        folder.mkdir()
    (run / "ledger.sqlite").touch()
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "link").symlink_to(start)
    of_start = tuned(recipe, output=start)
    opponent = {"me": {}, "opponent": {"source": recipe.sft.output, "trained": False}}
    teacher = {"name": "distillation", "teacher": recipe.sft.output}
    for refused, says in (
        (of_start, r"policy of model\.path"),
        (tuned(recipe, output=str(tmp_path / "link")), r"policy of model\.path"),
        (with_parts(of_start, model={"path": str(adapter)}), r"policy of model\.path, as the base of its adapter"),
        (with_parts(recipe, policies=opponent, runtime={"kind": "processes"}), r"policy of policies\.opponent\.source"),
        (with_parts(recipe, credit=teacher, filters=[]), r"policy of credit\.teacher"),
        (tuned(recipe, output=str(run / "policies" / "v0")), "in the folder of a run's policies"),
    ):
        with pytest.raises(ConfigError, match=says):
            run_sft(refused)
    assert (Path(start) / "config.json").is_file() and not (run / "policies").exists()


def test_the_command_fine_tunes_into_the_same_folder_again_and_says_so(recipe: Recipe, tmp_path: Path):
    file = tmp_path / "recipe.toml"
    file.write_text(to_toml(tuned(recipe, exercise_steps=0, steps=1)))
    first, second = (CliRunner().invoke(cli, ["sft", str(file), "--json"], catch_exceptions=False) for _ in range(2))
    assert "replaces" not in first.stderr
    assert f"note: replaces the policy in {recipe.sft.output}" in second.stderr
    file.write_text(to_toml(tuned(recipe, output=recipe.model.path)))
    refused = CliRunner().invoke(cli, ["sft", str(file)])
    assert isinstance(refused.exception, ConfigError) and "note: replaces" not in refused.stderr
    assert json.loads(second.stdout)["output"] == recipe.sft.output


def test_a_loss_or_gradient_that_is_not_finite_ends_it_and_no_policy_is_written(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A damaged weight makes the loss NaN; a loss of 0 has an infinite slope where it is the square root of 0."""
    monkeypatch.setattr(sft, "cross_entropy", lambda logits_NV, targets_N: (0 * logits_NV.square()).sum().sqrt())
    with pytest.raises(NonFiniteError, match=r"the loss 0\.0 or its gradient norm (nan|inf) is not finite"):
        run_sft(recipe)
    monkeypatch.undo()
    model, tokenizer, _ = load_policy(recipe.model.path)
    torch.nn.init.constant_(model.lm_head.weight, float("inf"))
    save_policy(model, tokenizer, tmp_path / "damaged")
    damaged = recipe.model_dump() | {"model": {"path": str(tmp_path / "damaged")}}
    with pytest.raises(NonFiniteError, match="the loss nan"):
        run_sft(parse_recipe(damaged, source="test"))
    assert not (tmp_path / "tuned" / "config.json").exists()


@pytest.mark.parametrize("settings", [{"exercise_steps": 1}, {"exercise_steps": 0, "steps_per_rehearsal": 1}])
def test_steps_on_exercises_without_a_generator_are_refused(recipe: Recipe, settings: dict[str, int]):
    with pytest.raises(ConfigError, match=r"sft\.exercises is empty"):
        tuned(recipe, exercises="", **settings)


def test_a_generator_that_cannot_be_imported_is_named(recipe: Recipe):
    with pytest.raises(ConfigError, match="no generator of exercises at 'nowhere:Exercises'"):
        run_sft(tuned(recipe, exercises="nowhere:Exercises"))


@pytest.mark.parametrize("device", DEVICES)
def test_fine_tuning_computes_on_the_trainers_device_and_in_its_data_type(
    recipe: Recipe, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is written from the CPU in float32; rounding the products changes its weights."""
    devices: set[str] = set()
    forward = sft.learned_logits

    def watched(model: PreTrainedModel, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
        found = forward(model, batch)
        devices.update(tensor.device.type for tensor in (*model.parameters(), *batch, *found))
        return found

    monkeypatch.setattr(sft, "learned_logits", watched)
    weights: dict[str, torch.Tensor] = {}
    for dtype in ("float32", "bfloat16"):
        train = {"device": device, "compute_dtype": dtype}
        run_sft(parse_recipe(recipe.model_dump() | {"train": recipe.train.model_dump() | train}, source="test"))
        model = load_policy(tmp_path / "tuned").model
        weights[dtype] = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    assert devices == {device}
    assert 0 < (weights["float32"] - weights["bfloat16"]).abs().max() < 0.1
