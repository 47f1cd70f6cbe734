"""Loss terms against TRL's trainers on the same model and tokens: the loss and the gradient of every parameter."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_batches import make_batch, make_call, make_model, make_tokenizer, make_trajectory, pack, unclipped

from quartet.config import Credit
from quartet.train.packing.microbatch import Microbatch
from quartet.train.step import Learner

pytest.importorskip("trl", reason="TRL is a dependency of the benchmarks only")
pytestmark = pytest.mark.slow
PROMPT = [1, 2, 3]
RESPONSES = [[4, 5, 6, 7], [8, 9], [10, 11, 12], [13]]
REWARDS = [1.0, 0.0, 0.25, 0.5]
LONGEST = 4
DIVISOR = 16


def quantity(seed: int, scale: float) -> list[torch.Tensor]:
    """One number for every response token, per rollout."""
    random = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(len(response), generator=random) for response in RESPONSES]


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([torch.nn.functional.pad(row, (0, LONGEST - len(row))) for row in rows])


@pytest.fixture(scope="module")
def logprobs() -> list[torch.Tensor]:
    """Log-probs of the responses under the tested model."""
    model, found = make_model(), []
    for response in RESPONSES:
        ids = torch.tensor([PROMPT + response])
        with torch.no_grad():
            scored_LV = model(ids).logits[0].log_softmax(-1)
        found.append(scored_LV[len(PROMPT) - 1 : -1].gather(1, torch.tensor(response)[:, None])[:, 0])
    return found


def moved(logprobs: list[torch.Tensor], seed: int, scale: float) -> list[torch.Tensor]:
    return [own + step for own, step in zip(logprobs, quantity(seed, scale), strict=True)]


def trl_arguments(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
    }


def tokenizer() -> Any:
    made = make_tokenizer()
    made.add_special_tokens({"pad_token": "0", "eos_token": "1"})
    return made


@pytest.fixture(scope="module")
def grpo(tmp_path_factory) -> Iterator[Any]:
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    arguments = GRPOConfig(
        **trl_arguments(tmp_path_factory.mktemp("grpo")),
        num_generations=4,
        per_device_train_batch_size=4,
        max_completion_length=DIVISOR,
        epsilon=0.2,
        epsilon_high=0.28,
        temperature=1.0,
    )
    trainer: Any = GRPOTrainer(
        model=make_model(),
        reward_funcs=lambda completions, **columns: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "1 2 3"}] * 4),
        processing_class=tokenizer(),
    )
    trainer.model.eval()
    yield trainer


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    found = {name: own.grad.clone() for name, own in model.named_parameters() if own.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def ours(
    recipe, loss: dict, old: list[torch.Tensor], reference: list[torch.Tensor]
) -> tuple[float, dict, torch.Tensor]:
    """Loss, gradients, and the advantage of each rollout."""
    members = [
        make_trajectory([make_call(PROMPT, response)], reward)
        for response, reward in zip(RESPONSES, REWARDS, strict=True)
    ]
    branches = pack(make_batch([members]), credit=Credit(name="dr_grpo")).branches
    learner = Learner(make_model(), unclipped(recipe(loss=loss)), {"reference": make_model(seed=1)})
    ((microbatch,),) = learner.plan(branches, 1, lambda: None)
    in_order = [branch.trajectory_index for branch in microbatch.branches]
    old_T = torch.cat([old[index] for index in in_order])
    own: Microbatch = replace(
        microbatch,
        old_logprobs_T=old_T,
        rollout_logprobs_T=old_T,  # for TRL, the old policy is the one that sampled
        reference_logprobs_T=torch.cat([reference[index] for index in in_order]),
    )
    found = learner.gradient([own], lambda: None)["loss"]
    by_rollout = {branch.trajectory_index: float(branch.advantages_L[-1]) for branch in branches}
    return found, gradients(learner.model), torch.tensor([by_rollout[index] for index in range(len(RESPONSES))])


def agree(found: tuple[float, dict], wanted: tuple[float, dict]) -> None:
    assert found[0] == pytest.approx(wanted[0], rel=1e-4, abs=1e-6)
    assert found[1].keys() == wanted[1].keys()
    assert max(one.abs().max() for one in wanted[1].values()) > 1e-4
    for name, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-3, atol=1e-6)


PPO = {"name": "ppo_clip", "importance": "none", "dual_clip": 1e9}
CASES = {
    "PPO clip, sequence mean": ({"loss_type": "grpo"}, {"terms": [PPO], "aggregation": "sequence_mean"}),
    "PPO clip, token mean": ({"loss_type": "bnpo"}, {"terms": [PPO]}),
    "dual clip": ({"loss_type": "bnpo", "delta": 1.5}, {"terms": [PPO | {"dual_clip": 1.5}]}),
    "fixed divisor": (
        {"loss_type": "dr_grpo"},
        {"terms": [PPO], "aggregation": "fixed_divisor", "divisor_tokens": DIVISOR},
    ),
    "GSPO": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"terms": [PPO | {"name": "gspo"}], "aggregation": "sequence_mean"},
    ),
    "CISPO": (
        {"loss_type": "cispo", "epsilon_high": 1.2},
        {"terms": [{"name": "cispo", "importance": "none", "clip_high": 0.2}]},
    ),
    "SAPO": (
        {"loss_type": "sapo"},
        {"terms": [{"name": "sapo", "importance": "none"}], "aggregation": "sequence_mean"},
    ),
    "k3 beside it": (
        {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": False},
        {"terms": [PPO, {"name": "kl", "weight": 0.3}]},
    ),
    "unbiased KL beside it": (
        {"loss_type": "bnpo", "beta": 0.3, "use_bias_correction_kl": True},
        {"terms": [PPO, {"name": "kl_unbiased", "weight": 0.3}]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_policy_losses_are_those_of_trl(recipe, grpo, monkeypatch, logprobs, case: str) -> None:
    theirs, loss = CASES[case]
    old, reference = moved(logprobs, seed=1, scale=0.4), moved(logprobs, seed=2, scale=0.5)
    for name, value in ({"epsilon_high": 0.28, "beta": 0.0, "importance_sampling_level": "token"} | theirs).items():
        monkeypatch.setattr(grpo if hasattr(grpo, name) else grpo.args, name, value)
    found, own, advantages = ours(recipe, loss, old, reference)
    lengths = [len(response) for response in RESPONSES]
    mask = padded([torch.ones(length, dtype=torch.long) for length in lengths])
    total = grpo.compute_loss(
        grpo.model,
        {
            "prompt_ids": torch.tensor([PROMPT] * 4),
            "prompt_mask": torch.ones(4, len(PROMPT), dtype=torch.long),
            "completion_ids": padded([torch.tensor(response) for response in RESPONSES]),
            "completion_mask": mask,
            "advantages": advantages,
            "old_per_token_logps": padded(old),
            "ref_per_token_logps": padded(reference),
            "num_items_in_batch": torch.tensor(float(sum(lengths))),
        },
    )
    total.backward()
    agree((found, own), (total.item(), gradients(grpo.model)))


def test_dpo_is_that_of_trl(recipe, tmp_path, logprobs) -> None:
    """All six pairs of four rollouts with different rewards, as a batch of pairs for TRL."""
    from datasets import Dataset
    from trl.trainer.dpo_config import DPOConfig
    from trl.trainer.dpo_trainer import DPOTrainer

    trainer: Any = DPOTrainer(
        model=make_model(),
        ref_model=make_model(seed=1),
        args=DPOConfig(**trl_arguments(tmp_path), beta=0.1, precompute_ref_log_probs=False),
        train_dataset=Dataset.from_list([{"prompt": "1 2", "chosen": " 3", "rejected": " 4"}]),
        processing_class=tokenizer(),
    )
    trainer.model.eval()
    order = sorted(range(4), key=lambda index: -REWARDS[index])
    pairs = [(better, worse) for place, better in enumerate(order) for worse in order[place + 1 :]]
    rows = [better for better, _ in pairs] + [worse for _, worse in pairs]
    ids = padded([torch.tensor(response) for response in RESPONSES])[rows]
    mask = padded([torch.ones(len(response), dtype=torch.long) for response in RESPONSES])[rows]
    prompts = torch.tensor([PROMPT] * len(rows))
    total = trainer.compute_loss(
        trainer.model,
        {
            "input_ids": torch.cat([prompts, ids], dim=1),
            "attention_mask": torch.cat([torch.ones_like(prompts), mask], dim=1),
            "completion_mask": torch.cat([torch.zeros_like(prompts), mask], dim=1),
        },
        False,
    )
    total.backward()
    reference, scored = make_model(seed=1), []
    for response in RESPONSES:
        with torch.no_grad():
            scored_LV = reference(torch.tensor([PROMPT + response])).logits[0].log_softmax(-1)
        scored.append(scored_LV[len(PROMPT) - 1 : -1].gather(1, torch.tensor(response)[:, None])[:, 0])
    found, own, _ = ours(recipe, {"terms": [{"name": "dpo", "beta": 0.1}]}, logprobs, scored)
    agree((found, own), (total.item(), gradients(trainer.model)))
