"""Settings of rollout generation: policy, environments, agent loop, engine."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from quartet.config.choice import Choice
from quartet.config.section import Device, LocalPath, PolicyPath, Positive, PositiveFloat, Section
from quartet.types.call import LARGEST_TEMPERATURE

TemplateName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
"""Name of an argument of a chat template."""


class Model(Section):
    """Weights and tokenizer of the policy."""

    path: PolicyPath
    """Folder of a causal language model in Hugging Face format (config.json, *.safetensors, tokenizer), or a name: of a
    shipped policy, such as `miniwob-start`, or of a model that `quartet model get` has downloaded, such as
    `smollm2-135m`."""
    trust_remote_code: bool = False
    """Run Python code that came with the model. Off by default."""
    template_arguments: dict[TemplateName, bool | int | str] = {}
    """Arguments of the chat template, such as `enable_thinking = false` for Qwen3."""
    freeze_vision: bool = False
    """Train only the decoder of a model that reads pictures; its vision tower stays as it is."""
    picture_cache_megabytes: Annotated[int, Field(ge=0)] = 512
    """Memory limit, in MiB, for outputs of the vision tower that a process keeps, so that the tower runs once per
    picture: in an embedded engine under one policy version, and in the trainer for the whole run if `freeze_vision` is
    set. A placeholder token takes 1 (Qwen2.5-VL) or 4 (Qwen3-VL) vectors of the decoder's width. Below the size of one
    picture the tower runs again for every chunk of a prompt."""


class Env(Choice):
    """Environment cluster."""

    kind = "env"
    name: str
    """Name of the environment: `quartet parts env` lists them."""
    families: list[str] = []
    """Task families to use; empty means all of the environment's."""
    sessions: Positive = 8
    """Number of concurrent environment sessions of each environment host. The sum over all hosts is the number of
    concurrent rollouts."""
    hosts: Positive = 1
    """Number of environment hosts. Workers deal their sessions over them; if a host ends, its rollouts are tried again
    at the others."""
    screenshots: bool = True
    """Take a picture of each observation, if the environment can, and keep it in the trajectory."""
    session_memory_megabytes: Annotated[int, Field(ge=0)] = 0
    """Run each session in a child process of its own with at most this memory, so that code that hangs, leaks, forks or
    crashes costs its own episode only. Each process of a reward then has at most this memory too. 0 runs the sessions
    in the environment host's process. Needs Linux."""
    step_timeout_seconds: PositiveFloat = 20.0
    """Timeout of a step. After it the rollout ends as `error_env`, and its session is discarded."""
    reset_timeout_seconds: PositiveFloat | None = None
    """Timeout of a reset; by default that of a step."""
    start_timeout_seconds: PositiveFloat = 120.0
    """Timeout of making a session, for example of starting a browser or loading a reward. Hosts make sessions before
    they are needed, so a reset seldom waits for one."""

    @property
    def variant(self) -> str:
        """Values of the environment's own settings, for tables and comparisons; of a boolean that is true, the name."""
        return ", ".join(
            name if value is True else str(value) for name, value in sorted(self.settings.items()) if value
        )


class Reward(Choice):
    """Reward of a response to a row of a data set, computed in child processes of its own."""

    kind = "reward"
    name: str
    """Name of the reward: `quartet parts reward` lists them. Or `module:function`, whose further settings are passed to
    the function as keyword arguments."""
    weight: float = 1.0
    """Factor on each component of the reward."""
    timeout_seconds: PositiveFloat = 10.0
    """Maximum duration of one computation. After it the child process is killed, and the rollout ends as
    `error_reward`."""
    max_memory_megabytes: Positive = 2048
    """Maximum memory of a child process, on Linux. A computation that needs more ends as `error_reward`."""
    processes: Positive = 1
    """Number of child processes, which is the number of computations at the same time unless the function is a
    coroutine or takes a batch."""


class Loop(Choice):
    """Agent loop: the form of prompts and actions."""

    kind = "loop"
    name: str = "latest"
    """Name of the agent loop: `quartet parts loop` lists them."""


class ActionFormat(Choice):
    """Notation of actions in responses."""

    kind = "action_format"
    name: str = "environment"
    """Name of the format: `quartet parts action_format` lists them. With `environment` the environment reads the
    responses in its own grammar; all other formats need an environment with `typed_actions`, and begin every
    conversation with their instructions."""


class History(Choice):
    """Choice of the earlier turns that prompts of the loop `screens` show."""

    kind = "history"
    name: str = "all"
    """Name of the history: `quartet parts history` lists them."""


class Brancher(Choice):
    """Choice of the points where a running rollout is forked."""

    kind = "brancher"
    name: str = "none"
    """Name of the brancher: `quartet parts brancher` lists them. All but `none` need an environment that has
    `snapshots` or is `deterministic`."""
    max_forks_per_group: Positive = 8
    """Maximum number of forks by the brancher in a group, over all rollouts of the group."""


class Guidance(Choice):
    """Advice in the prompts of guided rollouts."""

    kind = "guidance"
    name: str = "none"
    """Name of the guidance: `quartet parts guidance` lists them. Control decides which rollouts are guided, for example
    the allocator `guided` after a group of failures. Their tokens are trained after prompts without the advice."""


class Dispatch(Choice):
    """Choice of the engine for each request."""

    kind = "dispatch"
    name: str = "headroom"
    """Name of the dispatch: `quartet parts dispatch` lists them."""


class Rollout(Section):
    """Rollout service: workers, agent loop, sampling, leases."""

    workers: Positive = 1
    """Number of rollout workers, which share the sessions of all environment hosts equally."""
    max_running: Annotated[int, Field(ge=0)] = 0
    """Maximum number of rollouts that a worker runs at the same time; 0 sets none. Its further sessions reset the
    environment for the next rollouts ahead, so that a slow reset delays no engine."""
    loop: Loop = Loop()
    """Conversion of observations to prompts and of responses to actions."""
    history: History = History()
    """Choice of the earlier turns that a prompt shows, for the loop `screens`."""
    guidance: Guidance = Guidance()
    """Advice in the prompts of guided rollouts, which is left out in training."""
    actions: ActionFormat = ActionFormat()
    """Notation of actions in responses, and the coordinate frame of their places."""
    system_prompt: str | None = None
    """Text of the system's message that begins every conversation, before the instructions of the format of actions; an
    empty text is left out. If neither this nor `examples` is set, and `actions` is `environment`, the instructions and
    examples of the environment are used, if it has any. Without them the message has the form of an action, for chat
    models only, whose template has a role for the system; an empty text turns this off."""
    examples: LocalPath = ""
    """JSONL file of chats (`{"messages": [...]}`) that begin every conversation after the system's message, as examples
    of tasks and responses. Their tokens are not trained."""
    brancher: Brancher = Brancher()
    """Choice of the points where a running rollout is forked. The fork is a new rollout. It shares the beginning of the
    running rollout (its parent) and then continues on its own."""
    dispatch: Dispatch = Dispatch()
    """Choice of the engine for each request, where the run has several (`engine.replicas`, `quartet join`). Workers
    begin no rollouts while it counts all engines as full."""
    max_turns: Positive = 10
    """Upper bound of turns per rollout; control may set a lower one."""
    max_tokens: Positive = 32
    """Maximum length of one turn's response, in tokens."""
    temperature: Annotated[float, Field(ge=0, le=LARGEST_TEMPERATURE)] = 1.0
    """Sampling temperature of training rollouts; 0 is greedy."""
    stop_strings: list[Annotated[str, Field(min_length=1)]] = []
    """Strings that end a response, in addition to stop tokens. The token that completes a string is the last of the
    response. Special tokens count as text."""
    episode_timeout_seconds: PositiveFloat = 120.0
    """Maximum duration of a rollout, after which it ends as `truncated_time`. A response has no other time limit: raise
    this setting for a model that needs minutes for one response."""
    lease_seconds: PositiveFloat = 30.0
    """Time without progress after which a rollout is requeued. A reset and a step of the environment may take longer,
    within their own limits (`env.reset_timeout_seconds`, `env.step_timeout_seconds`), and so may a response, since
    keep-alives of a healthy engine count as progress. If an engine is silent or unreachable for four fifths of this
    time, the rollout ends as `error_engine`."""
    max_attempts: Positive = 3
    """Maximum number of attempts at a rollout, including the first. Attempts that ended with an infrastructure error or
    an expired lease count. Attempts that were recalled, or released because their worker stopped, do not count."""
    max_identical_errors: Positive = 20
    """Number of consecutive rollouts with the same error of the environment or the agent loop after which the run stops
    with this error. The limit is at least twice `env.sessions`, since one crash of the environment ends all sessions at
    once. Error texts that differ only in numbers are the same error."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_truncated_sampling(cls, settings: Any) -> Any:
        """Reject truncated sampling, and remove settings without effect: recipes of older runs have `top_p = 1`."""
        if not isinstance(settings, dict):
            return settings
        whole = {"top_p": 1, "top_k": 0, "min_tokens": 0}
        for name in sorted(whole.keys() & settings.keys()):
            if settings[name] != whole[name]:
                raise ValueError(
                    f"{name} = {settings[name]} samples from a part of the distribution, but the trainer computes "
                    "log-probs of all of it, so every importance ratio would be wrong by the mass of that part: "
                    f"truncate in evaluation only, with evaluation.{name}"
                )
        return {name: value for name, value in settings.items() if name not in whole}


class Engine(Choice):
    """Inference engine."""

    kind = "engine"
    name: str = "torch"
    """Name of the engine: `quartet parts engine` lists them."""
    replicas: Positive = 1
    """Number of engine processes, each with all weights. `rollout.dispatch` chooses the engine of a request, by default
    the one with the least work; its prompt counts as work, except at the engine that served the conversation last. If
    an engine dies, its requests continue at the other engines."""
    replicas_beside_trainer: Annotated[int, Field(ge=0)] = 0
    """Number of engines, the last ones of `replicas`, that share the trainer's device. They serve while the trainer
    waits for a batch, and hand their requests over to the other engines while it computes. The device must have memory
    for both."""
    max_slots: Positive = 32
    """Maximum number of requests that one engine decodes together (continuous batching)."""
    max_context_tokens: Positive = 1024
    """Maximum number of tokens of prompt and response together. A prompt that is too long is not cut: it ends the
    rollout as `truncated_tokens`."""
    threads: Positive = 1
    """Number of PyTorch threads. With more than one, the engine becomes much slower while other processes compute."""
    prefix_cache_megabytes: Annotated[int, Field(ge=0)] = 256
    """Memory of the prefix cache, which holds keys and values of conversations between turns, and of prompts that a
    group shares; 0 disables it. One token takes 2 x layers x kv_heads x head_dim elements."""
    device: Device = "cpu"
    """Device of an embedded engine: `cpu`, `cuda`, or `cuda:N`. Servers choose theirs themselves."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of weights, keys and values. bfloat16 is faster, but its log-probs deviate from the trainer's by more
    than 1e-4 nats."""
    kv_cache_on_weight_update: Literal["recompute", "keep"] = "recompute"
    """Treatment of the KV cache of requests in flight when new weights are loaded. `recompute` computes it again, so
    that each token depends on one version only; `keep` continues with the old keys and values. The engine `openai`
    always recomputes."""
