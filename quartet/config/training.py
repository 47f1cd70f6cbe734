"""Settings of training: reinforcement learning, and the supervised stage before it."""

from typing import Annotated, Literal

from pydantic import Field

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import Fraction, LocalPath, Positive, PositiveFloat, Section


class Train(Section):
    """Trainer: batch arithmetic and optimizer."""

    groups_per_batch: Positive = 8
    """Groups of one train step."""
    minibatches: Positive = 1
    """Optimizer steps per epoch over one batch."""
    epochs: Positive = 1
    """Passes over one batch."""
    max_tokens_per_microbatch: Positive = 4096
    """Prompt and response tokens of one forward pass; a prompt that branches share counts once. Attention, where each
    branch has its prompt to itself and is padded to the longest, sees at most 4 times as many positions. At least
    `engine.max_context_tokens`."""
    learning_rate: PositiveFloat = 3e-4
    """Peak learning rate of AdamW."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps over which the learning rate rises linearly."""
    decay_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps over which it then falls linearly to a tenth, where it stays; 0 keeps it constant."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's decoupled weight decay."""
    adam_beta1: Fraction = 0.9
    """Decay of AdamW's first moment."""
    adam_beta2: Fraction = 0.99
    """Decay of AdamW's second moment."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this global norm."""
    max_batch_attempts: Positive = 2
    """A batch whose train step fails this often is given up. The groups of it that fail by themselves are dropped with
    the reason `quarantined`, or all of them when none does; the run goes on."""
    max_quarantined_batches: Positive = 3
    """With this many batches given up and no train step between them the run stops with the error (exit code 6)."""
    train_steps_per_checkpoint: Positive = 1
    """Optimizer state is written every this many train steps; policies are published at every step."""
    max_train_steps: Positive = 1000
    """Training ends after this many train steps."""
    max_seconds: PositiveFloat = 36000.0
    """Wall time of training, over all resumes, from the moment when all modules are up; the step in progress is
    finished."""
    min_turn_entropy_percentile: Annotated[int, Field(ge=0, lt=100)] = 0
    """Only turns whose mean token entropy is at or above this percentile of their group's turns are trained: DART uses
    20. 0 trains all and saves a forward pass."""
    spare_replayed_turns: bool = False
    """Train all turns of a stored success, and take that percentile over the group's own turns. Off, as in DART, a
    success is left out as soon as it begins to be learned."""
    threads: Positive = 1
    """Torch threads."""
    starved_timeout_seconds: PositiveFloat = 300.0
    """Nothing to train for this long stops the run with an explanation (exit code 3)."""


class Credit(Choice):
    """What each sampled token is worth: its advantage, its return, and whether it is trained."""

    kind = "credit"
    name: str = "grpo"
    """Which one: `quartet parts credit` lists them."""


class LossTerm(Choice):
    """One summand of the loss."""

    kind = "loss_term"
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """What the term is multiplied with."""


class Loss(Section):
    """What the optimizer minimises: the weighted sum of its terms."""

    terms: Annotated[SeveralOf[LossTerm], Field(min_length=1)] = [LossTerm(name="ppo_clip")]
    """Its summands, for instance `["ppo_clip", {name = "kl", weight = 0.1}]`; a list replaces the default."""
    aggregation: Literal["token_mean", "sequence_mean", "branch_mean"] = "token_mean"
    """`token_mean`: every token counts equally; `sequence_mean`: every trajectory does; `branch_mean`: every branch
    does, which with the loop `latest` is every turn."""
    replay_share: Fraction | None = None
    """What all tokens of replayed members of a minibatch weigh together; those of its fresh ones weigh the rest, each
    with a mean of its own. Unset, the two have one mean, so a stored success weighs as much as any member (DART)."""


class Sft(Section):
    """Supervised fine-tuning (`quartet sft`), the cold start."""

    data: LocalPath = ""
    """Chat-format JSONL: {"messages": [{"role", "content"}, ...]} per line; only assistant tokens are trained. Empty,
    with `steps` 0: copying alone."""
    output: LocalPath = ""
    """Folder the policy is written to."""
    copy_steps: Annotated[int, Field(ge=0)] = 0
    """Warm-up: this many steps of copying random sequences before the first demonstration."""
    copy_learning_rate: PositiveFloat = 2e-3
    """Peak learning rate of the warm-up."""
    steps: Annotated[int, Field(ge=0)] = 1000
    """Optimizer steps on demonstrations; 0 means as many as `max_seconds` allows, and none when there is no `data`."""
    steps_per_rehearsal: Annotated[int, Field(ge=0)] = 0
    """One more step of copying after every so many demonstration steps, so that it is not forgotten; 0 means none."""
    tokens_per_batch: Positive = 4096
    """Tokens of one optimizer step, padding included."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate of AdamW on demonstrations and rehearsals."""
    max_seconds: PositiveFloat = 36000.0
    """Wall time of the stage; the step in progress is finished."""
    threads: Positive = 1
    """Torch threads."""
