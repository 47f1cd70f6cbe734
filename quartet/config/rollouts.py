"""Knobs of what makes rollouts: policy, environments, agent loop, engine."""

from typing import Annotated, Literal

from pydantic import Field

from quartet.config.section import Positive, PositiveFloat, Section


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
    prefix_cache_megabytes: Annotated[int, Field(ge=0)] = 256
    """Memory for the keys and values of conversations between turns and of prompts that a group shares; 0 keeps none.
    One token takes 2 x layers x kv_heads x head_dim numbers."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights, keys and values. bfloat16 is faster and no longer agrees with the trainer to 1e-4 nats."""
