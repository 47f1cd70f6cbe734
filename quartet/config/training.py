"""Settings of training: reinforcement learning, and the supervised stage before it."""

from typing import Annotated, Literal

from pydantic import Field

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import Fraction, LocalPath, Positive, PositiveFloat, Section


class Train(Section):
    """Trainer: batch arithmetic and optimizer."""

    groups_per_batch: Positive = 8
    """Groups per train step."""
    minibatches: Positive = 1
    """Optimizer steps per epoch over one batch."""
    epochs: Positive = 1
    """Passes over one batch."""
    max_tokens_per_microbatch: Positive = 4096
    """Prompt and response tokens of one forward pass; a prompt shared by branches counts once. Attention repeats the
    prompt for each branch and pads branches to the longest, over at most 4 times as many positions. At least
    `engine.max_context_tokens`."""
    learning_rate: PositiveFloat = 3e-4
    """Peak learning rate of AdamW."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps over which the learning rate rises linearly."""
    decay_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps over which the rate then falls linearly to a tenth, where it stays; 0 keeps it constant."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's decoupled weight decay."""
    adam_beta1: Fraction = 0.9
    """Decay of AdamW's first moment."""
    adam_beta2: Fraction = 0.99
    """Decay of AdamW's second moment."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this global norm."""
    max_batch_attempts: Positive = 2
    """Attempts of a batch's train step before the batch is given up. Its groups that fail on their own are dropped with
    the reason `quarantined`, or all groups if none does; the run continues."""
    max_quarantined_batches: Positive = 3
    """Batches given up in a row, without a train step between them, after which the run stops with the error (exit code
    6)."""
    train_steps_per_checkpoint: Positive = 1
    """Write the optimizer state every this many train steps; policies are published at every step."""
    max_train_steps: Positive = 1000
    """Training ends after this many train steps."""
    max_seconds: PositiveFloat = 36000.0
    """Wall time of training over all resumes, counted from when all modules are up; the step in progress is
    finished."""
    min_turn_entropy_percentile: Annotated[int, Field(ge=0, lt=100)] = 0
    """Train only turns whose mean token entropy is at or above this percentile of their group's turns; DART uses 20. 0
    trains all turns and saves a forward pass."""
    spare_replayed_turns: bool = False
    """Train all turns of a stored success, and compute the percentile over the group's own turns. If false, as in DART,
    a success is left out as soon as it begins to be learned."""
    threads: Positive = 1
    """Torch threads."""
    starved_timeout_seconds: PositiveFloat = 300.0
    """Stop the run with an explanation (exit code 3) after this long without a batch to train on."""


class Credit(Choice):
    """Credit assignment: advantage, return and mask of each sampled token."""

    kind = "credit"
    name: str = "grpo"
    """Name of the credit: `quartet parts credit` lists them."""


class LossTerm(Choice):
    """One summand of the loss."""

    kind = "loss_term"
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Factor of the term in the loss."""


class Loss(Section):
    """Loss that the optimizer minimises: the weighted sum of its terms."""

    terms: Annotated[SeveralOf[LossTerm], Field(min_length=1)] = [LossTerm(name="ppo_clip")]
    """Terms of the loss, for instance `["ppo_clip", {name = "kl", weight = 0.1}]`; a list replaces the default."""
    aggregation: Literal["token_mean", "sequence_mean", "branch_mean"] = "token_mean"
    """Weight of tokens in the loss. `token_mean`: every token weighs the same; `sequence_mean`: every trajectory;
    `branch_mean`: every branch, which with the loop `latest` is every turn."""
    replay_share: Fraction | None = None
    """Total weight of the replayed members' tokens in a minibatch; fresh ones get the rest, and each kind has its own
    mean. Unset, both share one mean, so a stored success weighs as much as any member (DART)."""


class Sft(Section):
    """Supervised fine-tuning (`quartet sft`), the cold start."""

    data: LocalPath = ""
    """Chat-format JSONL: {"messages": [{"role", "content"}, ...]} per line; only assistant tokens are trained. Empty,
    with `steps` 0: train on copying alone."""
    output: LocalPath = ""
    """Folder to which the policy is written."""
    copy_steps: Annotated[int, Field(ge=0)] = 0
    """Warm-up steps of copying random sequences before the first demonstration."""
    copy_learning_rate: PositiveFloat = 2e-3
    """Peak learning rate of the warm-up."""
    steps: Annotated[int, Field(ge=0)] = 1000
    """Optimizer steps on demonstrations; 0 means as many as `max_seconds` allows, or none if `data` is empty."""
    steps_per_rehearsal: Annotated[int, Field(ge=0)] = 0
    """Demonstration steps between two rehearsal steps of copying, which prevent forgetting; 0 means none."""
    tokens_per_batch: Positive = 4096
    """Tokens of one optimizer step, padding included."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate of AdamW on demonstrations and rehearsals."""
    max_seconds: PositiveFloat = 36000.0
    """Wall time of the stage; the step in progress is finished."""
    threads: Positive = 1
    """Torch threads."""
