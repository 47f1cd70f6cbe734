"""TRL's GRPOTrainer with the settings of the comparison, on one processor core or several."""

import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmarks.trl_contenders import base
from benchmarks.trl_contenders.base import Job, Run, TrainStep
from benchmarks.trl_contenders.conversation import speak_tools

MICROBATCH_LOGIT_BYTES = 1 << 30
"""TRL keeps several copies of a microbatch's logits: 16 rollouts of SmolLM2-135M need more than 20 GB."""
PRESS_TOKENS = 130
"""Maximum tokens of a page and a response, for each press of a rollout."""


def train(job: Job, folder: Path, rows: list[dict[str, Any]], **how: Any) -> Run:
    """Train on the dataset `rows`. `how` is passed to GRPOTrainer: the environment, or the rollout function."""
    torch.set_num_threads(job.threads)
    steps = Steps()
    tokenizer = speak_tools(AutoTokenizer.from_pretrained(job.policy))
    trainer = GRPOTrainer(
        model=job.policy,
        args=_arguments(job, folder, len(tokenizer)),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[steps],
        **how,
    )
    trainer.train()
    return Run(steps.ended)


def rows_per_microbatch(vocabulary: int) -> int:
    """Return how many of a batch's rollouts have logits of at most `MICROBATCH_LOGIT_BYTES` in float32."""
    fit = MICROBATCH_LOGIT_BYTES // (4 * vocabulary * base.MAX_CONTEXT_TOKENS)
    return next(rows for rows in (16, 8, 4, 2, 1) if rows <= max(fit, 1))


def _arguments(job: Job, folder: Path, vocabulary: int) -> GRPOConfig:
    rows = rows_per_microbatch(vocabulary)
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=job.train_steps,
        num_generations=base.ROLLOUTS_PER_GROUP,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=base.ROLLOUTS_PER_STEP // rows,
        max_completion_length=base.MAX_PRESSES * PRESS_TOKENS + base.TURN_TOKENS,
        generation_kwargs={"max_new_tokens": base.TURN_TOKENS},
        temperature=1.0,
        learning_rate=base.LEARNING_RATE,
        lr_scheduler_type="constant",
        adam_beta1=base.ADAM_BETAS[0],
        adam_beta2=base.ADAM_BETAS[1],
        weight_decay=0.0,
        max_grad_norm=base.MAX_GRAD_NORM,
        epsilon=base.CLIP_LOW,
        epsilon_high=base.CLIP_HIGH,
        beta=0.0,
        bf16=False,
        gradient_checkpointing=False,  # would compute the forward pass twice
        model_init_kwargs={"dtype": torch.float32},
        use_cpu=True,
        seed=job.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


class Steps(TrainerCallback):
    """Callback that records the end of each train step, and TRL's metrics of it."""

    def __init__(self) -> None:
        self.ended: list[TrainStep] = []

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._now = time.time()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if logs and "reward" in logs:
            tokens = float(logs["completions/mean_length"])
            step = TrainStep(
                ended=self._now,
                reward=float(logs["reward"]),
                generated_tokens=tokens,
                trained_share=1.0,  # every token was sampled by the policy before the step
            )
            self.ended.append(step)
