"""Every knob of a run, typed, with its meaning under the field. Imports nothing heavy.

A recipe is a TOML file with these sections; `quartet.recipe_file.load_recipe` reads it.
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from quartet.types import OnLate, ReplayRule

Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


def _as_list(value: object) -> object:
    """One name stands for a list of one."""
    return [value] if isinstance(value, str) else value


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Model(Section):
    """The policy's weights and tokenizer."""

    path: str
    """Folder of a causal language model in Hugging Face format (config.json, *.safetensors, tokenizer)."""
    trust_remote_code: bool = False
    """Run Python code that came with the model. Off unless you ask for it."""


class Env(Section):
    """Environment cluster."""

    name: str
    """Registered environment: `miniwob`, `bandit`, `locks`."""
    suite: str = ""
    """Named suite of task families of that environment, for example `miniwob-24`."""
    families: list[str] = []
    """Task families to use; empty means all families of the suite."""
    sessions: Positive = 8
    """Concurrent environment sessions = concurrent rollouts."""
    screenshots: bool = True
    """Keep a screenshot of every turn in the trajectory."""
    step_timeout_seconds: PositiveFloat = 20.0
    """A reset or step that takes longer is an `error_env` and the session is thrown away."""


class Rollout(Section):
    """Rollout service: agent loop, sampling, leases."""

    loop: str = "latest"
    """Agent loop: `append` keeps the whole conversation (one branch), `latest` shows the newest observation and a
    list of earlier actions (one branch per turn, as DART does)."""
    max_turns: Positive = 10
    """Upper bound of turns per rollout; control may set a lower one."""
    max_tokens: Positive = 32
    """Longest response of one turn, in tokens."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of training rollouts; 0 is greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Nucleus sampling; 1 samples from the whole distribution."""
    episode_timeout_seconds: PositiveFloat = 120.0
    """A rollout that takes longer ends as `truncated_time`."""
    lease_seconds: PositiveFloat = 30.0
    """A rollout without progress for this long goes back to the queue."""
    max_attempts: Positive = 3
    """How often an infrastructure error is retried, first attempt included."""


class Engine(Section):
    """Inference engine."""

    kind: Literal["torch"] = "torch"
    """`torch`: embedded, any causal language model of `transformers`."""
    max_slots: Positive = 32
    """Requests decoded together."""
    max_context_tokens: Positive = 1024
    """Prompt and response together; a longer prompt is refused, never cut."""
    threads: Positive = 1
    """Torch threads. More than one collapses when a neighbour is busy."""


class Vade(Section):
    """Sampler `vade`. The decays are our reading: the paper's page gives the posterior and the information gain."""

    exponent: PositiveFloat = 2.0
    """Information gain p (1 - p)^exponent: 2 as published, 1 is the variance of the reward."""
    decay_sampled: Annotated[float, Field(gt=0, le=1)] = 0.9
    """What was known of a family weighs this much less with every further group of it."""
    decay_step: Annotated[float, Field(gt=0, le=1)] = 0.995
    """And this much less with every `train.groups_per_batch` groups of whatever family: the policy moves on."""


class DynamicRollouts(Section):
    """Allocator `dynamic`: DART's dynamic rollout frequency."""

    success_threshold: Fraction = 0.6
    """Up to this success rate a group gets all of `rollouts_per_group`."""
    min_rollouts: Annotated[int, Field(ge=2)] = 4
    """Above it, a group gets int(9 / success rate - 7) rollouts, but not fewer than this."""


class LongestSuccess(Section):
    """Horizon `longest_success`: DART's dynamic trajectory length."""

    min_successes: Annotated[int, Field(ge=1, le=64)] = 8
    """Before so many successes of the family are known, its limit is the upper bound."""
    factor: Annotated[float, Field(ge=1)] = 1.25
    """Then it is the longest success times this, plus one turn."""
    groups_per_exploration: Annotated[int, Field(ge=1)] = 8
    """One in this many groups of a family runs at the upper bound as a whole."""
    truncated_share: Fraction = 0.5
    """When more than this share of a family's rollouts is cut off by its turn limit, that limit doubles."""


class Staged(Section):
    """Horizon `staged`: ScalingInter-RL."""

    train_steps: list[Annotated[int, Field(ge=0)]] = [0]
    """Train steps at which a stage begins, ascending; the first is 0."""
    max_turns: list[Positive] = [10]
    """Turn limit of each stage."""

    @model_validator(mode="after")
    def _consistent(self) -> "Staged":
        steps = self.train_steps
        if len(steps) != len(self.max_turns) or steps[:1] != [0] or steps != sorted(set(steps)):
            raise ValueError("one max_turns per train_steps, which ascend from 0")
        return self


class Control(Section):
    """Which task, how many rollouts, how long."""

    sampler: str = "contrast"
    """Which task comes next: `uniform`; `contrast` (families in proportion to the chance that a group has mixed
    outcomes; those that take more turns than others less); `least_solved` (all families in turn, the least solved
    first); `vade` (Thompson sampling of the information gain)."""
    allocator: str = "fixed"
    """How many rollouts a group gets: `fixed` is `rollouts_per_group`, `dynamic` fewer of what mostly succeeds."""
    rollouts_per_group: Annotated[int, Field(ge=1)] = 8
    """Rollouts of one task that are compared with each other."""
    horizon: Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)] = ["fixed"]
    """How many turns a rollout gets; of several, the lowest: `fixed` is `rollout.max_turns`, `suite` what the
    environment's suite states, `longest_success` follows the successes of the family, `staged` grows with training."""
    train_seeds_per_family: Positive = 200
    """Training draws seeds 0 .. this-1 of every family, so tasks recur."""
    statistics_window_rollouts: Positive = 32
    """Success rates are taken over the last this many countable rollouts of a family."""
    vade: Vade = Vade()
    """Knobs of the sampler `vade`."""
    dynamic_rollouts: DynamicRollouts = DynamicRollouts()
    """Knobs of the allocator `dynamic`."""
    longest_success: LongestSuccess = LongestSuccess()
    """Knobs of the horizon `longest_success`."""
    staged: Staged = Staged()
    """Knobs of the horizon `staged`."""


class Admission(Section):
    """Bounded staleness."""

    max_lag: Annotated[int, Field(ge=0)] = 2
    """No fresh token more than this many versions old is trained on; `replay.max_lag` is the bound of replayed ones. 0
    is synchronous training."""
    on_late: OnLate = "mask"
    """What becomes of a group that outlives its pace: `mask` leaves its too old tokens out of loss and denominator;
    `wait` holds the next policy back until it has ended (at `group_deadline_seconds` at the latest) and masks what is
    too old all the same; `drop` drops it with reason `over_lag`."""
    min_rollouts_per_group: Positive = 2
    """Countable members a group needs to be trained."""
    group_deadline_seconds: PositiveFloat = 180.0
    """An open group closes at this age with what it has; what arrives later is kept as `late`."""


class Train(Section):
    """Trainer: batch arithmetic and optimizer."""

    groups_per_batch: Positive = 8
    """Groups of one train step."""
    minibatches: Positive = 1
    """Optimizer steps per epoch over one batch."""
    epochs: Positive = 1
    """Passes over one batch."""
    max_tokens_per_microbatch: Positive = 4096
    """Prompt and response tokens of one forward pass, padding included."""
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
    train_steps_per_checkpoint: Positive = 1
    """Optimizer state is written every this many train steps; policies are published at every step."""
    max_train_steps: Positive = 1000
    """Training ends after this many train steps."""
    max_seconds: PositiveFloat = 36000.0
    """Wall time of training; the step in progress is finished."""
    min_turn_entropy_percentile: Annotated[int, Field(ge=0, lt=100)] = 0
    """Only turns whose mean token entropy is at or above this percentile of their group's turns are trained: DART uses
    20. 0 trains all and saves a forward pass."""
    threads: Positive = 1
    """Torch threads."""
    starved_timeout_seconds: PositiveFloat = 300.0
    """Nothing to train for this long stops the run with an explanation (exit code 3)."""


class Advantage(Section):
    """From the rewards of a group to one number per trajectory."""

    name: str = "grpo"
    """`grpo`: (reward - group mean) / (group standard deviation + epsilon), one value per trajectory. `grpo_steps`: the
    same with mean and standard deviation over all steps of the group, so that long trajectories weigh more in them."""
    epsilon: PositiveFloat = 1e-6
    """Added to the group's standard deviation."""
    negative_weight: Annotated[float, Field(ge=0)] = 1.0
    """Factor on advantages below zero. 1 is GRPO; 0 learns from what went better than the group's mean, only."""


class Loss(Section):
    """Policy loss."""

    name: str = "ppo_clip"
    """`ppo_clip`: PPO's clipped surrogate with DART's truncated importance weight. `gspo`: the same with one ratio per
    branch, the geometric mean over its tokens (DART's released code)."""
    clip_low: Fraction = 0.2
    """The ratio is clipped below 1 minus this."""
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """The ratio is clipped above 1 plus this: separate bounds are DAPO's clip-higher."""
    importance: Literal["truncate", "mask", "none"] = "truncate"
    """What happens to a token whose importance weight w = pi_train_old / pi_rollout, a constant, is above
    `importance_cap`: `truncate` gives it the cap (DART with cap 1, slime with cap 2), `mask` the weight 0 (AReaL's
    decoupled objective, cap 5). With `none` every weight is 1, as if the trainer's own policy had sampled."""
    importance_cap: PositiveFloat = 1.0
    """Largest importance weight."""
    aggregation: Literal["token_mean", "sequence_mean", "branch_mean"] = "token_mean"
    """`token_mean`: every token counts equally; `sequence_mean`: every trajectory does; `branch_mean`: every branch
    does, which with the loop `latest` is every turn."""
    kl_coefficient: Annotated[float, Field(ge=0)] = 0.0
    """Weight of the k3 KL estimate to the reference policy (the policy the run started from); 0 loads no reference."""
    entropy_coefficient: float = 0.0
    """Weight of an entropy bonus; 0 is off."""


class Broken(Section):
    """Filter `broken`: rollouts in which the policy hardly acted."""

    max_error_share: Fraction = 0.5
    """A failure with more than this share of turns without a valid action is left out."""


class Overlong(Section):
    """Filter `overlong`: rollouts that were cut off or are too long."""

    max_response_tokens: Annotated[int, Field(ge=0)] = 0
    """Besides truncated rollouts, those with more response tokens are left out; 0 means no such limit."""


class AccuracyBand(Section):
    """Filter `accuracy_band`: groups that are too easy or too hard."""

    min_success: Fraction = 0.1
    """A group with a lower share of successes is too hard."""
    max_success: Fraction = 0.9
    """A group with a higher share of successes is too easy."""

    @model_validator(mode="after")
    def _consistent(self) -> "AccuracyBand":
        if self.min_success > self.max_success:
            raise ValueError("min_success is above max_success: every group would be dropped")
        return self


class Filter(Section):
    """What is worth training on."""

    names: Annotated[list[str], BeforeValidator(_as_list)] = ["mixed_outcome"]
    """Applied in order to every closed group. `broken` and `overlong` leave members out, `accuracy_band` drops groups
    that are too easy or too hard, `mixed_outcome` those whose rewards are all equal."""
    broken: Broken = Broken()
    """Knobs of the filter `broken`."""
    overlong: Overlong = Overlong()
    """Knobs of the filter `overlong`."""
    accuracy_band: AccuracyBand = AccuracyBand()
    """Knobs of the filter `accuracy_band`."""


class Replay(Section):
    """What was seen before and is trained on again."""

    name: str = "none"
    """`none`, or `success_pool`: a stored success joins a group of the same task in which all rollouts failed."""
    rule: ReplayRule = ReplayRule.STORED
    """What its importance weight is taken from: `stored` the recorded log-probs, `recompute` nothing (weight 1)."""
    demonstrations: str = ""
    """File of successes that are in the pool from the start: chat-format JSONL whose lines name their task, or what
    `quartet ledger export` writes. Format and checks: docs/exchange.md."""
    demonstration_rule: ReplayRule = ReplayRule.RECOMPUTE
    """The rule for those. `stored` only where a Quartet policy sampled them: a chat has no log-probs."""
    mode: Literal["insert", "substitute"] = "insert"
    """`insert` adds it to the group, `substitute` lets it take the place of the first member."""
    choice: Literal["random", "newest"] = "random"
    """Which of the task's stored successes."""
    entries_per_task: Positive = 8
    """Newest successes of a task that are stored."""
    max_replays: Positive = 8
    """An entry joins at most this many groups."""
    max_lag: Annotated[int, Field(ge=0)] | None = None
    """A success with a token more than this many versions old does not join. Unset, a success of any age does: replays
    are exempt from `admission.max_lag`, and only they. Demonstrations have no age."""


class Evaluation(Section):
    """Held-out evaluation: seeds that training never draws."""

    train_steps_per_evaluation: Annotated[int, Field(ge=0)] = 0
    """Evaluate on held-out seeds every this many train steps; 0 means only before and after."""
    episodes_per_family: Positive = 20
    """Episodes per family of the evaluations before and after training."""
    episodes_per_family_during: Positive = 4
    """Episodes per family of the evaluations during training."""
    first_seed: Annotated[int, Field(ge=0)] = 1_000_000
    """Held-out seeds start here; a recipe whose training seeds reach it is refused."""
    before_and_after: bool = True
    """Evaluate before and after training."""
    control: bool = False
    """After training, train the initial policy on `sft.data` for the same wall time and evaluate it as well."""


class Disk(Section):
    """Disk budget."""

    keep_policies: Positive = 4
    """Newest policies kept on disk, besides the first and the best."""
    keep_checkpoints: Positive = 2
    """Newest trainer checkpoints kept on disk."""
    max_blob_megabytes: Positive = 2000
    """When blobs outgrow this, screenshots of trained or dropped rollouts go first; then the run stops, explained."""
    max_record_age_seconds: Annotated[float, Field(gt=0)] | None = None
    """Records of rollouts whose groups are over are deleted at this age; their rows stay. Unset, they are kept. It must
    be longer than the time between two checkpoints: after a crash the batches since the last one are trained again. An
    audit needs the records of the whole run."""
    max_record_age_versions: Positive | None = None
    """The same, counted in policy versions that have been committed since their newest token."""
    min_free_megabytes: Positive = 200
    """With less free disk than this nothing new is started."""


class Runtime(Section):
    """Where the modules run."""

    kind: Literal["processes", "synchronous"] = "processes"
    """`processes`: every module its own process. `synchronous`: one process, one thread, phases in turn; one seed
    gives a bit-identical run."""
    max_restarts_per_module: Annotated[int, Field(ge=0)] = 20
    """A module that dies more often ends the run."""
    max_restart_delay_seconds: PositiveFloat = 8.0
    """A module that died is started again after 0.5 s, then after twice as long each time, up to this."""
    heartbeat_timeout_seconds: PositiveFloat = 60.0
    """A module silent for this long is killed and started again."""
    engine_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the engine on this machine; 0 picks a free one."""
    env_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of the environment host on this machine; 0 picks a free one."""
    receipts: bool = False
    """Worker and trainer write hashes of what they append and train into `receipts/`, for an audit that does not trust
    the ledger. All weights are hashed at every train step."""


class Ledger(Section):
    """The database."""

    durability: Literal["process", "full"] = "process"
    """`process` survives the death of any process; `full` also power loss (fsync at every commit)."""
    url: str = ""
    """A PostgreSQL database, `postgresql://user@host/database`, for workers on several machines; empty is a SQLite file
    in the run's folder. The password comes from PGPASSWORD or ~/.pgpass: the recipe is written into the run."""

    blobs_url: str = ""
    """Where blobs of more than 64 kB go: any URL of fsspec (`s3://bucket/run`); empty is the run's folder."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and not url.startswith("postgresql://"):
            raise ValueError("must be empty (SQLite) or begin with postgresql://")
        if urlsplit(url).password:
            raise ValueError("holds a password, which would be written into the run: use PGPASSWORD or ~/.pgpass")
        return url


class Sft(Section):
    """Supervised fine-tuning (`quartet sft`), the cold start."""

    data: str = ""
    """Chat-format JSONL: {"messages": [{"role", "content"}, ...]} per line; only assistant tokens are trained. Empty,
    with `steps` 0: copying alone."""
    output: str = ""
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


class Recipe(Section):
    """One run, whole."""

    config_version: Literal[1] = 1
    name: str
    seed: int = 0
    model: Model
    env: Env
    rollout: Rollout = Rollout()
    engine: Engine = Engine()
    control: Control = Control()
    admission: Admission = Admission()
    filter: Filter = Filter()
    train: Train = Train()
    advantage: Advantage = Advantage()
    loss: Loss = Loss()
    replay: Replay = Replay()
    evaluation: Evaluation = Evaluation()
    disk: Disk = Disk()
    ledger: Ledger = Ledger()
    runtime: Runtime = Runtime()
    sft: Sft = Sft()

    @model_validator(mode="after")
    def _consistent(self) -> "Recipe":
        if self.control.rollouts_per_group < self.admission.min_rollouts_per_group:
            raise ValueError("control.rollouts_per_group is smaller than admission.min_rollouts_per_group")
        if self.control.train_seeds_per_family > self.evaluation.first_seed:
            raise ValueError("training seeds reach into the held-out seeds: raise evaluation.first_seed")
        if self.control.allocator == "dynamic":
            least, most = self.control.dynamic_rollouts.min_rollouts, self.control.rollouts_per_group
            if not self.admission.min_rollouts_per_group <= least <= most:
                raise ValueError(
                    "control.dynamic_rollouts.min_rollouts must lie between admission.min_rollouts_per_group and "
                    "control.rollouts_per_group"
                )
            if self.control.statistics_window_rollouts < most:
                raise ValueError("control.statistics_window_rollouts is smaller than control.rollouts_per_group")
        return self

    @property
    def rollouts_per_batch(self) -> int:
        """R = G groups x N rollouts."""
        return self.train.groups_per_batch * self.control.rollouts_per_group

    @property
    def max_groups_ahead(self) -> int:
        """Groups that may be open, waiting or in training at once: (max_lag + 1) x groups per batch."""
        return (self.admission.max_lag + 1) * self.train.groups_per_batch


RESUMABLE_KNOBS = (
    "train.max_train_steps",
    "train.max_seconds",
    "train.learning_rate",
    "train.starved_timeout_seconds",
    "env.sessions",
    "env.step_timeout_seconds",
    "rollout.lease_seconds",
    "rollout.episode_timeout_seconds",
    "evaluation.train_steps_per_evaluation",
    "evaluation.episodes_per_family_during",
    "evaluation.control",
    "replay.demonstrations",
    "disk",
    "runtime",
    "engine",
)
"""What may change at `--resume`; every other difference is refused, because it would make one run out of two."""
