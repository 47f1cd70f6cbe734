"""Supervised fine-tuning of a policy before RL, on generated exercises and demonstrations.

Prompts are long and responses short, so the output head is computed only at columns with target tokens, the tokens
whose log-prob is maximised. The model is trained on `train.device`, with matrix products in `train.compute_dtype`.
"""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypedDict

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from quartet.config import Recipe, Sft
from quartet.env.opening import opening
from quartet.errors import ConfigError
from quartet.policy.device import usable_device
from quartet.policy.examples import TokenBatch, batches, padding_id, read_chats
from quartet.policy.kind.find import load_pictures
from quartet.policy.load import load_model
from quartet.policy.save import save_policy
from quartet.policy.tokenizer_files import load_tokenizer, set_template_arguments
from quartet.policy.weights import weight_files
from quartet.registry import load_class
from quartet.train.linear import train_by_the_faster_library
from quartet.train.optimizer import FINAL_LEARNING_RATE_SHARE
from quartet.train.sft_output import make_output
from quartet.train.step import NonFiniteError

WARMUP_STEPS = 30
"""Number of steps of linear warmup."""
ADAM_BETAS = (0.9, 0.98)
MAX_GRAD_NORM = 1.0
STEPS_IN_SUMMARY = 20
EXERCISES, DEMONSTRATIONS = "exercises", "demonstrations"
Lesson = tuple[str, TokenBatch]
"""Phase (`exercises` or `demonstrations`) and batch of one optimizer step."""


class Exercises(Protocol):
    """Generator of examples, made with a tokenizer and a seed (`sft.exercises`)."""

    def batches(self, tokens_per_batch: int, pad_id: int) -> Iterator[TokenBatch]:
        """Yield batches without end."""
        ...

    def observe(self, accuracy: float) -> None:
        """Record the accuracy on the latest batch; later batches may become harder."""
        ...


class SftStep(NamedTuple):
    """Progress and metrics of one optimizer step."""

    phase: str
    """`exercises` or `demonstrations`."""
    step: int
    """Number of the step over both phases, from 1."""
    total_steps: int
    """Number of steps of the whole training; 0 if only the time limit ends it."""
    loss: float
    """Mean cross entropy of the target tokens, in nats."""
    accuracy: float
    """Share of the target tokens to which the model gave the highest probability."""
    tokens: int
    """Number of tokens in the batch, padding included."""
    seconds: float
    """Wall time since the start of training."""


class SftSummary(TypedDict):
    """Result of a fine-tuning. Loss and accuracy are means over the last 20 steps, whatever their phase."""

    output: str
    examples: int
    exercise_steps: int
    demonstration_steps: int
    tokens: int
    loss: float
    accuracy: float
    train_seconds: float
    stopped_by: str
    """`steps` or `max_seconds`."""


def run_sft(recipe: Recipe, *, on_step: Callable[[SftStep], None] | None = None) -> SftSummary:
    """Fine-tune the policy at `model.path` and write it to `sft.output`.

    Without `sft.data` and with `sft.steps` = 0, train only on exercises. The same recipe and seed give the same
    weights, unless the time limit `sft.max_seconds` ends the training. With `sft.data` and `sft.steps` = 0 it always
    does.

    Raise `ConfigError` for missing or malformed demonstrations, or an output path that cannot be used, such as that of
    the policy that is fine-tuned. Raise `CheckpointError` for a missing or damaged policy, or an output folder that
    holds other files. Raise `NonFiniteError` for a loss or gradient that is not finite.
    """
    sft = recipe.sft
    if not sft.output:
        raise ConfigError("sft.output is empty", "name the folder to which the policy is written")
    if not sft.data and (sft.steps or not sft.exercise_steps):
        raise ConfigError(
            "sft.data is empty",
            "name a chat-format JSONL file; for exercises only, set sft.exercise_steps, and sft.steps = 0",
        )
    make_output(recipe)
    torch.set_num_threads(sft.threads)
    device = usable_device(recipe.train.device, "train.device")
    weight_files(Path(recipe.model.path))  # a wrong folder is named as such, not as one without a tokenizer
    folder, trust = Path(recipe.model.path), recipe.model.trust_remote_code
    tokenizer = load_tokenizer(folder, trust_remote_code=trust)
    set_template_arguments(tokenizer, recipe.model.template_arguments)
    pad_id = padding_id(tokenizer)
    # Before the weights, whose loading takes minutes for a large model: a wrong line ends the command at once.
    examples = read_chats(sft.data, tokenizer, opening(recipe, tokenizer)) if sft.data else []
    model, pictures = load_model(folder, trust_remote_code=trust), load_pictures(folder)
    torch.nn.Module.to(model, device)
    exercises: Exercises | None = None
    if sft.exercises:
        exercises = load_class(sft.exercises, "generator of exercises")(tokenizer, recipe.seed)
    rng = np.random.default_rng(recipe.seed)
    demonstrations = batches(examples, sft.tokens_per_batch, pad_id, rng) if examples else iter(())
    exercised = exercises.batches(sft.tokens_per_batch, pad_id) if exercises else iter(())
    lessons = schedule(sft, exercised, demonstrations)

    steps: list[SftStep] = []
    for step in SftTrainer(model, recipe).run(lessons):
        steps.append(step)
        if exercises and step.phase == EXERCISES:
            exercises.observe(step.accuracy)
        if on_step:
            on_step(step)
    torch.nn.Module.to(model.eval(), "cpu")
    save_policy(model, tokenizer, sft.output, pictures=pictures)
    return summarise(recipe, steps, num_examples=len(examples))


def schedule(sft: Sft, exercises: Iterator[TokenBatch], demonstrations: Iterator[TokenBatch]) -> Iterator[Lesson]:
    """Yield batches of exercises, then of demonstrations.

    After every `sft.steps_per_rehearsal` demonstration steps, another batch of exercises is inserted.
    """
    yield from ((EXERCISES, batch) for batch in islice(exercises, sft.exercise_steps))
    for number, batch in enumerate(islice(demonstrations, sft.steps or None), start=1):
        yield DEMONSTRATIONS, batch
        if sft.steps_per_rehearsal and number % sft.steps_per_rehearsal == 0:
            yield EXERCISES, next(exercises)


def count_steps(sft: Sft) -> int:
    """Return the number of optimizer steps of all lessons; 0 if only the time limit ends the training."""
    if not sft.data:
        return sft.exercise_steps
    if not sft.steps:
        return 0
    rehearsals = sft.steps // sft.steps_per_rehearsal if sft.steps_per_rehearsal else 0
    return sft.exercise_steps + sft.steps + rehearsals


def learning_rate(sft: Sft, step: int, demonstrated: int, seconds: float) -> float:
    """Return the learning rate of optimizer step `step` (from 1).

    It rises during warmup, falls over the steps on exercises, and falls again over the steps on demonstrations. If the
    number of demonstration steps is not limited, the second fall follows the elapsed time.
    """
    if step <= sft.exercise_steps:
        peak, done = sft.exercise_learning_rate, step / sft.exercise_steps
    else:
        peak = sft.learning_rate
        done = demonstrated / sft.steps if sft.steps else min(1.0, seconds / sft.max_seconds)
    return peak * min(1.0, step / WARMUP_STEPS) * (1 - (1 - FINAL_LEARNING_RATE_SHARE) * done)


class SftTrainer:
    """Model and optimizer of one fine-tuning."""

    def __init__(self, model: PreTrainedModel, recipe: Recipe) -> None:
        train_by_the_faster_library(model)
        self._model, self._sft = model.train(), recipe.sft
        self._dtype = getattr(torch, recipe.train.compute_dtype)
        # Dropout, where a model has it, draws from torch's global generator.
        torch.manual_seed(recipe.seed)
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=recipe.sft.learning_rate, betas=ADAM_BETAS, weight_decay=0.0, fused=True
        )

    def run(self, lessons: Iterator[Lesson]) -> Iterator[SftStep]:
        """Take one optimizer step per lesson, until there are no more lessons or `max_seconds` have passed."""
        total, started = count_steps(self._sft), time.monotonic()
        demonstrated = 0
        for step, (phase, batch) in enumerate(lessons, start=1):
            rate = learning_rate(self._sft, step, demonstrated, time.monotonic() - started)
            loss, accuracy = self._learn(batch, rate)
            demonstrated += phase == DEMONSTRATIONS
            seconds = time.monotonic() - started
            yield SftStep(phase, step, total, loss, accuracy, batch.ids_BT.numel(), seconds)
            if seconds > self._sft.max_seconds:
                return

    def _learn(self, batch: TokenBatch, learning_rate: float) -> tuple[float, float]:
        """Take one optimizer step; return the mean loss and accuracy of the batch before the step.

        Raise `NonFiniteError` before the weights change.
        """
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        device = self._model.device
        batch = TokenBatch(*(tensor.to(device) for tensor in batch))
        with torch.autocast(device.type, self._dtype, enabled=self._dtype != torch.float32):
            logits_NV, targets_N = learned_logits(self._model, batch)
        loss = cross_entropy(logits_NV, targets_N)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), MAX_GRAD_NORM)
        if not (loss.isfinite() and norm.isfinite()):
            raise NonFiniteError(
                f"the loss {loss.item()} or its gradient norm {norm.item()} is not finite",
                "lower sft.learning_rate and sft.exercise_learning_rate; no policy was written",
            )
        self._optimizer.step()
        self._optimizer.zero_grad()
        return loss.item(), (logits_NV.argmax(-1) == targets_N).float().mean().item()


def learned_logits(model: PreTrainedModel, batch: TokenBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits `[N, V]` and the ids `[N]` of the batch's N target tokens, row by row.

    No attention mask is needed: padding is on the right, so with causal attention no token attends to it. The head is
    computed for all rows at each column in which any row has a target token. Demonstrations in a batch have similar
    lengths, so few of the computed logits are unused.
    """
    learned_BT = batch.learned_BT[:, 1:]
    columns_C = learned_BT.any(dim=0).nonzero()[:, 0]
    logits_BCV = model(input_ids=batch.ids_BT, logits_to_keep=columns_C, use_cache=False).logits
    chosen_BC = learned_BT[:, columns_C]
    return logits_BCV[chosen_BC].float(), batch.ids_BT[:, 1:][:, columns_C][chosen_BC]


def summarise(recipe: Recipe, steps: list[SftStep], *, num_examples: int) -> SftSummary:
    last = steps[-STEPS_IN_SUMMARY:]
    demonstration_steps = sum(step.phase == DEMONSTRATIONS for step in steps)
    return SftSummary(
        output=recipe.sft.output,
        examples=num_examples,
        exercise_steps=len(steps) - demonstration_steps,
        demonstration_steps=demonstration_steps,
        tokens=sum(step.tokens for step in steps),
        loss=float(np.mean([step.loss for step in last])),
        accuracy=float(np.mean([step.accuracy for step in last])),
        train_seconds=steps[-1].seconds,
        stopped_by="steps" if len(steps) == steps[-1].total_steps else "max_seconds",
    )
