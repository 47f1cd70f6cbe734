"""TRL's GRPOTrainer, which receives the batch's rollouts without generating them.

A turn begins when the trainer asks for rollouts, and ends after the optimizer step. So it includes rewards, advantages,
loss, gradient and optimizer, and decoding of the tokens into text, but neither generation nor environments.

On a CPU, TRL applies the output head at every position, those of prompts and padding included. The code that leaves
these out needs Triton, and so a GPU.
"""

import tempfile
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmarks.trainer_contenders.base import (
    CLIP_HIGH,
    CLIP_LOW,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    VOCABULARY,
    Turns,
    Work,
    new_model,
)
from benchmarks.trainer_contenders.batches import prepared
from quartet.train.packing.branches import Branch
from quartet.types import Batch

MANY = 1_000_000


def train(turns: Turns, batch: Batch, work: Work) -> None:
    with tempfile.TemporaryDirectory() as folder:
        new_trainer(turns, batch, folder, work).train()


def new_trainer(turns: Turns, batch: Batch, folder: str, work: Work) -> GRPOTrainer:
    branches = prepared(batch)
    return GRPOTrainer(
        model=new_model(work.policy),
        args=_arguments(folder, batch, branches, work.microbatch_tokens),
        train_dataset=Dataset.from_list([{"prompt": "3"}] * len(branches)),
        processing_class=_tokenizer(),
        rollout_func=Rollouts(turns, batch, branches),
        reward_funcs=given_reward,
        callbacks=[Ends(turns)],
    )


class Rollouts:
    """Rollout function that begins a turn and returns the batch."""

    __name__ = "rollouts"

    def __init__(self, turns: Turns, batch: Batch, branches: Sequence[Branch]) -> None:
        self._turns = turns
        self._columns = {
            "prompt_ids": [branch.ids_L[: branch.prompt_tokens].tolist() for branch in branches],
            "completion_ids": [branch.ids_L[branch.prompt_tokens :].tolist() for branch in branches],
            "logprobs": None,
            "env_mask": [branch.trained_L[branch.prompt_tokens :].astype(int).tolist() for branch in branches],
            "env_reward": [member.trajectory.reward for group in batch.groups for member in group.members],
        }

    def __call__(self, prompts: list[Any], trainer: GRPOTrainer) -> dict[str, Any]:
        self._turns.begin()
        return dict(self._columns)


class Ends(TrainerCallback):
    """Callback that ends a turn after each optimizer step."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._turns.end()


def given_reward(env_reward: Sequence[float], **columns: Any) -> list[float | None]:
    return [*env_reward]


def _arguments(folder: str, batch: Batch, branches: Sequence[Branch], microbatch_tokens: int) -> GRPOConfig:
    """Return TRL's settings: microbatches of about as many positions, with padding, as the other contenders have."""
    longest = max(branch.num_tokens for branch in branches)
    most = min(len(branches), max(1, microbatch_tokens // longest))
    rows = max(size for size in (1, 2, 4, 8, 16, 32, 64) if size <= most)
    return GRPOConfig(
        output_dir=folder,
        max_steps=MANY,
        num_generations=len(batch.groups[0].members),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=len(branches) // rows,
        max_completion_length=longest,
        temperature=1.0,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=MAX_GRAD_NORM,
        epsilon=CLIP_LOW,
        epsilon_high=CLIP_HIGH,
        beta=0.0,
        bf16=False,
        gradient_checkpointing=False,  # would compute the forward pass twice
        use_cpu=True,
        logging_steps=MANY,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def _tokenizer() -> PreTrainedTokenizerFast:
    words = WordLevel({str(number): number for number in range(VOCABULARY)}, unk_token="0")
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words))
    made.add_special_tokens({"pad_token": "0", "eos_token": "1"})
    return made
