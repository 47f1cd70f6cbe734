"""Knobs of what makes rollouts: policy, environments, agent loop, engine."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from quartet.config.choice import Choice
from quartet.config.section import PolicyPath, Positive, PositiveFloat, Section


class Model(Section):
    """The policy's weights and tokenizer."""

    path: PolicyPath
    """Folder of a causal language model in Hugging Face format (config.json, *.safetensors, tokenizer), or the name of
    a policy that ships: `miniwob-start`."""
    trust_remote_code: bool = False
    """Run Python code that came with the model. Off unless you ask for it."""


class Env(Choice):
    """Environment cluster."""

    kind = "env"
    name: str
    """Which one: `quartet parts env` lists them."""
    families: list[str] = []
    """Task families to use; empty means all that the environment has."""
    sessions: Positive = 8
    """Concurrent environment sessions = concurrent rollouts."""
    screenshots: bool = True
    """Keep a picture of every observation in the trajectory."""
    step_timeout_seconds: PositiveFloat = 20.0
    """A reset or step that takes longer is an `error_env` and the session is thrown away."""

    @property
    def variant(self) -> str:
        """The environment's own settings as words, for tables and comparisons."""
        return ", ".join(str(value) for _, value in sorted(self.knobs.items()) if value)


class Loop(Choice):
    """Agent loop."""

    kind = "loop"
    name: str = "latest"
    """Which one: `quartet parts loop` lists them."""


class Brancher(Choice):
    """Where children leave a running rollout."""

    kind = "brancher"
    name: str = "none"
    """Which one: `quartet parts brancher` lists them. All but `none` need an environment that is `deterministic`."""
    max_forks_per_group: Positive = 8
    """A group gets at most this many forks by the brancher, of all its rollouts together."""


class Rollout(Section):
    """Rollout service: agent loop, sampling, leases."""

    loop: Loop = Loop()
    """How observations become prompts and responses become actions."""
    brancher: Brancher = Brancher()
    """Where children leave a running rollout: they share its beginning and then go their own way."""
    max_turns: Positive = 10
    """Upper bound of turns per rollout; control may set a lower one."""
    max_tokens: Positive = 32
    """Longest response of one turn, in tokens."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of training rollouts; 0 is greedy."""
    stop_strings: list[Annotated[str, Field(min_length=1)]] = []
    """A response also ends with the token that completes one of these; special tokens count as text."""
    episode_timeout_seconds: PositiveFloat = 120.0
    """A rollout that takes longer ends as `truncated_time`. It is the only limit of a response's time: models that need
    minutes for one need more."""
    lease_seconds: PositiveFloat = 30.0
    """A rollout without progress for this long goes back to the queue: more than the longest environment step. A
    response may take longer: an engine that is well says so meanwhile, and that is progress. One that is silent or
    stays away for four fifths of it is an `error_engine`."""
    max_attempts: Positive = 3
    """Attempts that may fail by an infrastructure error or an expired lease, the first one included. An attempt that is
    given back (its worker stops) or recalled does not count."""
    max_identical_errors: Positive = 20
    """When this many rollouts in a row have failed with the same error of the environment or the agent loop, the run
    stops with it; at least twice `env.sessions`, since one death of the environment ends all sessions at once. Texts
    that differ only in numbers are the same error."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_truncated_sampling(cls, knobs: Any) -> Any:
        """What changes nothing is taken away: recipes of runs that began earlier say `top_p = 1`."""
        if not isinstance(knobs, dict):
            return knobs
        whole = {"top_p": 1, "top_k": 0, "min_tokens": 0}
        for name in sorted(whole.keys() & knobs.keys()):
            if knobs[name] != whole[name]:
                raise ValueError(
                    f"{name} = {knobs[name]} samples from a part of the distribution; the trainer computes log-probs "
                    "of the whole, and every importance ratio would be wrong by the mass of that part: evaluation "
                    f"may do it, with evaluation.{name}"
                )
        return {name: value for name, value in knobs.items() if name not in whole}


class Engine(Choice):
    """Inference engine."""

    kind = "engine"
    name: str = "torch"
    """Which one: `quartet parts engine` lists them."""
    replicas: Positive = 1
    """Engine processes, each with all the weights. A request goes to the one with the least work, or to the one that
    had its conversation; one that dies loses no request."""
    max_slots: Positive = 32
    """Requests that one engine decodes together."""
    max_context_tokens: Positive = 1024
    """Prompt and response together; a longer prompt is refused, never cut."""
    threads: Positive = 1
    """Torch threads. More than one collapses when a neighbour is busy."""
    prefix_cache_megabytes: Annotated[int, Field(ge=0)] = 256
    """Memory for the keys and values of conversations between turns and of prompts that a group shares; 0 keeps none.
    One token takes 2 x layers x kv_heads x head_dim numbers."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of weights, keys and values. bfloat16 is faster and no longer agrees with the trainer to 1e-4 nats."""
    old_cache: Literal["recompute", "keep"] = "recompute"
    """What requests in flight have computed when new weights come: `recompute` computes it again, so that each token is
    of its own version alone; `keep` goes on with it. The engine `openai` always recomputes."""
