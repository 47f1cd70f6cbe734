"""Settings of training: reinforcement learning, and the supervised stage before it."""

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from quartet.config.choice import Choice, SeveralOf
from quartet.config.section import Device, Fraction, LocalPath, Positive, PositiveFloat, Section


class Train(Section):
    """Trainer: batch arithmetic and optimizer."""

    groups_per_batch: Positive = 8
    """Groups per train step."""
    minibatches: Positive = 1
    """Optimizer steps per epoch over one batch."""
    epochs: Positive = 1
    """Passes over one batch."""
    processes: Positive = 1
    """Processes that train a policy together, each on its share of a minibatch and with its shard of the weights
    (FSDP2). May change at `--resume`."""
    nodes: Positive = 1
    """Nodes of a Ray cluster over which the processes are dealt evenly; each needs an equal part of the resources of
    `placement.trainer`. May change at `--resume`."""
    device: Device = "cpu"
    """Device of the trainer and of `quartet sft`: `cpu`, `cuda`, or `cuda:N`. May change at `--resume`."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of matrix products in the passes of the trainer and of `quartet sft` (autocast). Weights, gradients and
    optimizer state are float32 in both cases."""
    activation_checkpointing: bool = False
    """Keep only the input of each layer for the backward pass, and compute the layer again there: less memory, about a
    third more computation. Results do not change. May change at `--resume`."""
    offload_optimizer: bool = False
    """Keep AdamW's moments in the CPU's memory between optimizer steps, if the device is not the CPU. May change at
    `--resume`."""
    max_tokens_per_microbatch: Positive = 4096
    """Maximum number of prompt and response tokens in one forward pass; a prefix that branches share counts once.
    Without a compiled kernel, attention repeats the prefix for each branch and pads branches, which takes up to 4 times
    as many positions. The setting must be at least `engine.max_context_tokens`."""
    learning_rate: PositiveFloat = 3e-4
    """Peak learning rate of AdamW."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps over which the learning rate rises linearly."""
    decay_steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps after the warmup over which the learning rate falls linearly to a tenth, where it stays; 0 keeps
    it constant."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's decoupled weight decay."""
    adam_beta1: Fraction = 0.9
    """Decay of AdamW's first moment."""
    adam_beta2: Fraction = 0.99
    """Decay of AdamW's second moment."""
    max_grad_norm: PositiveFloat = 1.0
    """The gradients of the policy and of the critic are clipped separately, each to this global norm. The metric
    `train/gradient_norm` is the policy's, `train/critic_gradient_norm` the critic's."""
    max_batch_attempts: Positive = 2
    """Maximum number of attempts at a train step. If all fail, each group of the batch is computed alone. Groups that
    fail alone are dropped with the reason `quarantined`, or all groups if none fails alone, and the run continues. An
    error of one of several `processes` ends all of them: its batch gets one more attempt, and then all of its groups
    are dropped."""
    max_quarantined_batches: Positive = 3
    """Number of batches with quarantined groups, without a new train step between them, after which the run stops with
    the error (exit code 6). A train step that is trained again after a roll-back is not new."""
    train_steps_per_checkpoint: Positive | None = None
    """Number of train steps between two writes of the optimizer state. Policies are published at every step. A thread
    writes the state while the next steps are trained, so a crash costs fewer train steps than twice this number; they
    are trained again. If unset, the number is 1 for up to 200 MB of state (25 million parameters), 1 more for each
    further 200 MB, and at most 10."""
    publish_dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights in published policies. bfloat16 halves their size and suits `engine.dtype = "bfloat16"`.
    The trainer keeps its weights in float32; with bfloat16, checkpoints hold these weights too."""
    max_train_steps: Positive = 1000
    """Number of train steps after which training ends."""
    max_rollouts: Positive | None = None
    """Number of queued training rollouts, cancelled ones included, from which no further group starts. Training ends
    when the groups that have started are trained as far as they fill batches. The last group may exceed the number."""
    target_success: Annotated[float, Field(gt=0, le=1)] | None = None
    """Greedy success rate of an evaluation during training at which training ends. It needs
    `evaluation.train_steps_per_evaluation`. The first result that reaches the target overestimates success on average,
    and more so with fewer episodes per evaluation."""
    max_seconds: PositiveFloat = 36000.0
    """Wall time of training over all resumes, counted from the moment when all modules are up. A train step in progress
    at the end is finished."""
    min_turn_entropy_percentile: Annotated[int, Field(ge=0, lt=100)] = 0
    """Percentile of the mean token entropies of a group's turns; only turns at or above it are trained. DART uses 20.
    With 0 all turns are trained, which saves a forward pass."""
    exempt_replayed_turns: bool = False
    """Train all turns of a stored success, and compute the percentile over the turns of the group's own rollouts. If
    false, as in DART, turns of a stored success are left out once the policy has begun to learn them, since their
    entropy falls."""
    overlong_max_tokens: Positive | None = None
    """Number of response tokens at which the reward of a rollout is lowered by 1, as in DAPO, before credit is
    assigned. Near this length the penalty is smaller (`overlong_cache_tokens`). If unset, there is no penalty."""
    overlong_cache_tokens: Positive = 256
    """Number of response tokens, up to `overlong_max_tokens`, over which the penalty falls from 0 to -1."""
    mask_truncated: bool = False
    """Leave truncated rollouts out of the loss, after credit is assigned: they stay in the baseline, as in DAPO, and in
    a normalisation over the batch. A call that forked rollouts share is left out only if all of them are truncated. The
    filter `overlong` removes truncated rollouts from all."""
    threads: Positive = 1
    """Number of PyTorch threads per process (`processes`)."""
    starved_timeout_seconds: PositiveFloat = 300.0
    """Time without a batch to train on after which the run stops. If many groups were dropped meanwhile, all for equal
    rewards and none with a failure, the policy has learned its tasks, and the run ends as at a limit; else with an
    explanation (exit code 3)."""

    @model_validator(mode="after")
    def _processes_are_dealt_evenly(self) -> Self:
        if self.processes % self.nodes:
            raise ValueError(
                f"train.processes = {self.processes} cannot be dealt evenly over train.nodes = {self.nodes}"
                " -> make the first a multiple of the second"
            )
        return self

    @model_validator(mode="after")
    def _offload_is_from_a_device(self) -> Self:
        if self.offload_optimizer and self.device == "cpu":
            raise ValueError("train.offload_optimizer has no effect with train.device = 'cpu': remove it")
        return self

    @model_validator(mode="after")
    def _some_length_is_free(self) -> Self:
        if self.overlong_max_tokens is not None and self.overlong_cache_tokens > self.overlong_max_tokens:
            raise ValueError("train.overlong_cache_tokens is above train.overlong_max_tokens -> lower the first")
        return self


class Lora(Section):
    """Low-rank adapter (LoRA, arXiv 2106.09685), trained in place of all weights; needs the package `peft`."""

    rank: Annotated[int, Field(ge=0)] = 0
    """Rank of the adapter's factors; 0 trains all weights. The initial policy is the base, which stays frozen, and
    serves as the reference policy."""
    alpha: PositiveFloat = 32.0
    """Scale of the adapter: the product of its factors is multiplied by alpha / rank."""
    target_modules: list[str] = []
    """Layers that get an adapter, by the ends of their names, such as `["q_proj", "v_proj"]`; empty means all linear
    layers but the output matrix."""
    publish: Literal["adapter", "merged"] = "adapter"
    """Content of published policies. `adapter`: the factors, a few megabytes, which the embedded engines merge with the
    base that they loaded once. `merged`: whole weights, for every engine, with the factors in a subfolder."""

    @model_validator(mode="after")
    def _settings_are_of_an_adapter(self) -> Self:
        changed = [name for name, field in Lora.model_fields.items() if getattr(self, name) != field.default]
        if changed and not self.rank:
            raise ValueError(f"lora.{changed[0]} has no effect with lora.rank = 0 -> set lora.rank, or remove it")
        return self


class Publisher(Choice):
    """Way of new weights from the trainer to the engines."""

    kind = "publisher"
    name: str = "files"
    """Name of the publisher: `quartet parts publisher` lists them. May change at `--resume`."""


class Credit(Choice):
    """Credit assignment: advantage, return and mask of each sampled token."""

    kind = "credit"
    name: str = "grpo"
    """Name of the credit: `quartet parts credit` lists them."""


class Critic(Choice):
    """Critic: the estimate of the return before each token. A run has a critic if a loss term trains it."""

    kind = "critic"
    name: str = "head"
    """Name of the critic: `quartet parts critic` lists them."""


class Reference(Section):
    """Policy for the pass `reference`, which KL terms and `dpo` use: at first the policy that the run started from."""

    train_steps_per_move: Annotated[int, Field(ge=0)] = 0
    """Number of train steps between two moves of the reference towards the trained policy; 0: the reference never
    moves."""
    move_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the distance to the trained policy by which a move changes each weight. With 1 the trained policy
    replaces the reference, as in ProRL (arXiv 2505.24864), which also resets the optimizer. Below 1 the reference is an
    exponential moving average (TR-DPO, arXiv 2404.09656)."""
    max_moves: Positive | None = None
    """Maximum number of moves; unset: no limit. With 1 and `move_share = 1`, the policy of one train step is the
    reference for the rest of the run (ReMix's reincarnation)."""

    @model_validator(mode="after")
    def _moves_are_described_if_there_are_any(self) -> Self:
        described = {"move_share": self.move_share != 1.0, "max_moves": self.max_moves is not None}
        if any(described.values()) and not self.train_steps_per_move:
            raise ValueError(
                f"{' and '.join(f'reference.{name}' for name, given in described.items() if given)} has no effect "
                "while the reference does not move -> set reference.train_steps_per_move"
            )
        return self


class LossTerm(Choice):
    """One summand of the loss."""

    kind = "loss_term"
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    """Factor of the term in the loss."""
    weight_points: list[tuple[Annotated[int, Field(ge=0)], Annotated[float, Field(allow_inf_nan=False)]]] = []
    """Further factor of the term, which changes during the run: pairs of a train step and the factor there. It is
    linear between them, and constant before the first and after the last. Empty: 1."""

    @field_validator("weight_points")
    @classmethod
    def _train_steps_rise(cls, points: list[tuple[int, float]]) -> list[tuple[int, float]]:
        if any(after <= before for (before, _), (after, _) in pairwise(points)):
            raise ValueError(
                "the train steps of weight_points must rise -> sort the pairs, and list each train step once"
            )
        return points


class Loss(Section):
    """Loss that the optimizer minimises: the weighted sum of its terms."""

    terms: Annotated[SeveralOf[LossTerm], Field(min_length=1)] = [LossTerm(name="ppo_clip")]
    """Terms of the loss, for instance `["ppo_clip", {name = "kl", weight = 0.1}]`; a list replaces the default."""
    aggregation: Literal["token_mean", "sequence_mean", "branch_mean", "fixed_divisor"] = "token_mean"
    """Weight of tokens in the loss. `token_mean`: all tokens have the same weight. `sequence_mean`: all trajectories
    have the same weight, so tokens of a late fork weigh more than those of its parent, which has the shared ones.
    `branch_mean`: all branches have the same weight; with the loop `latest` a branch is a turn.
    `fixed_divisor` (Dr. GRPO): sum over a trajectory's tokens, divide by `divisor_tokens`, then average over the
    minibatch's trajectories, so that the weight of a token does not depend on lengths. No aggregation counts
    trajectories without a trained token, such as those that `train.mask_truncated` leaves out: with `fixed_divisor`,
    the other tokens then weigh more than in Dr. GRPO."""
    divisor_tokens: Positive | None = None
    """Divisor of `fixed_divisor`, for example the maximum number of response tokens of a trajectory."""
    replay_share: Fraction | None = None
    """Total weight of the replayed members' tokens in a minibatch. The tokens of fresh members have the remaining
    weight, and the loss is averaged over each kind separately. If unset, the loss is averaged over both kinds together,
    so that a stored success weighs as much as any member (DART)."""

    @model_validator(mode="after")
    def _one_divisor(self) -> Self:
        if (self.divisor_tokens is None) == (self.aggregation == "fixed_divisor"):
            raise ValueError(
                "loss.divisor_tokens and loss.aggregation = 'fixed_divisor' go together -> set both or neither"
            )
        return self


class Sft(Section):
    """Supervised fine-tuning (`quartet sft`), the cold start. It trains all weights: `lora` and
    `train.activation_checkpointing` have no effect on it."""

    data: LocalPath = ""
    """File in chat-format JSONL: {"messages": [{"role", "content"}, ...]} per line; only assistant tokens are trained.
    If it is empty and `steps` is 0, only exercises are trained."""
    output: LocalPath = ""
    """Folder to which the policy is written. An earlier policy there is replaced, but none that the recipe reads, and
    none of a run."""
    exercises: str = ""
    """`module:Class` that generates examples without data, such as `recipes.miniwob.copying:CopyingExercises`, which
    teaches a new policy to copy; empty for none."""
    exercise_steps: Annotated[int, Field(ge=0)] = 0
    """Number of optimizer steps on exercises, before the first demonstration."""
    exercise_learning_rate: PositiveFloat = 2e-3
    """Peak learning rate of the steps on exercises before the first demonstration."""
    steps: Annotated[int, Field(ge=0)] = 1000
    """Optimizer steps on demonstrations; 0 means as many as `max_seconds` allows, or none if `data` is empty."""
    steps_per_rehearsal: Annotated[int, Field(ge=0)] = 0
    """Number of steps on demonstrations between two steps on exercises, which prevent forgetting; with 0 there are no
    steps on exercises between demonstrations."""
    tokens_per_batch: Positive = 4096
    """Tokens of one optimizer step, padding included."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate of AdamW on demonstrations and rehearsals."""
    max_seconds: PositiveFloat = 36000.0
    """Maximum wall time of fine-tuning; the step in progress is finished."""
    threads: Positive = 1
    """Number of PyTorch threads."""

    @model_validator(mode="after")
    def _steps_on_exercises_have_some(self) -> Self:
        if (self.exercise_steps or self.steps_per_rehearsal) and not self.exercises:
            raise ValueError("sft.exercises is empty, but steps are set -> name a module:Class, or set the steps to 0")
        return self
