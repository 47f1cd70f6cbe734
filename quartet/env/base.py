"""Interfaces of environments: a session, a pool of sessions, and the part that a recipe names."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Protocol, runtime_checkable

from quartet import config
from quartet.env.session_pool import SessionPool
from quartet.errors import EnvError
from quartet.part import Part
from quartet.types import Action, Message, Observation, StepResult, Task

Expert = Callable[[Observation], str]
"""Policy that solves one task: it returns the next action for an observation, or "" if it has none. It raises
`ExpertError` if the observation lacks what the action needs."""
SPEAKER = "speaker"
"""Key of `StepResult.info`: the role that responds next, `AGENT` or `USER`. Without it the agent does."""
AGENT, USER = "agent", "user"


def in_order(actions: Iterable[str]) -> Expert:
    """Return an expert that takes these actions one after the other, whatever it sees, and then has none."""
    left = iter(actions)
    return lambda _: next(left, "")


class Env(Protocol):
    """One session of an environment. It plays one episode at a time, and may be used for many.

    Every method may raise `EnvError` (infrastructure failure; the rollout is retried in another session) or
    `RewardError` (the reward could not be computed). A malformed or impossible action does not raise an error: `step`
    returns a result whose observation has `error` set.
    """

    async def reset(self, task: Task) -> Observation:
        """Start an episode of `task`."""
        ...

    async def step(self, action: str) -> StepResult:
        """Apply one action given as text in the environment's grammar."""
        ...

    async def close(self) -> None:
        """Release all resources; safe to call twice."""
        ...


@runtime_checkable
class RestorableEnv(Env, Protocol):
    """Session whose state can be stored within an episode, so that forked rollouts can begin from that state.

    The class of the environment sets `Environment.snapshots`.
    """

    async def snapshot(self) -> bytes:
        """Return the state of the episode, with which `restore` can continue in any session and on any host.

        The maximum size is `quartet.env.protocol.MAX_SNAPSHOT_BYTES`. Store a larger state elsewhere and return its
        name.
        """
        ...

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        """Start an episode of `task` in a stored state, instead of `reset`. Return the observation in that state.

        The caller sets `error` of the observation from the parent's record. Any exception but `EnvError` means that the
        state cannot be restored; the rollout then ends as `diverged`.
        """
        ...


def restorable(env: Env) -> RestorableEnv:
    """Return the session, typed as `RestorableEnv`. Raise `EnvError` if it does not define snapshots."""
    if isinstance(env, RestorableEnv):
        return env
    raise EnvError(
        f"{type(env).__name__} defines no snapshot() and restore()",
        "define both, or set `snapshots = False` in the class of the environment",
    )


@runtime_checkable
class ActingEnv(Env, Protocol):
    """Session that performs typed actions. The class of the environment sets `Environment.typed_actions`."""

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform the actions of one response in order; without actions only observe.

        The result lists the record of each action. All keys are released at the end, also after an error.
        """
        ...


def acting(env: Env) -> ActingEnv:
    """Return the session, typed as `ActingEnv`. Raise `EnvError` if it does not perform typed actions."""
    if isinstance(env, ActingEnv):
        return env
    raise EnvError(
        f"{type(env).__name__} defines no act()", "define it, or leave `rollout.actions` at 'environment' in the recipe"
    )


class EnvPool(Protocol):
    """Source of sessions for rollouts: in this process, or of an environment host over WebSocket."""

    async def acquire(self) -> Env:
        """Return a free session; wait if all are in use. Raise `EnvError` if the host cannot be reached."""
        ...

    async def release(self, env: Env, *, healthy: bool) -> None:
        """Release a session; an unhealthy session is closed and replaced."""
        ...

    async def close(self) -> None: ...


class Environment(Part):
    """Task families and their sessions. Most environments define only `families` and `session`."""

    observation_format: ClassVar[int] = 1
    """Version of the observation format. Increase it at any change to the texts of goals or pages, so that older
    demonstrations are rejected."""
    grammar: ClassVar[str] = ""
    """Form of an action in words, for `chat_instructions` and the alarm about responses without a valid action."""
    instructions: str = ""
    """Text that tells a policy the tasks and the form of actions: the system's message, unless a recipe sets
    `rollout.system_prompt` or `rollout.examples`. Leave it empty for policies that were trained on the environment."""
    examples: Sequence[Message] = ()
    """Chats that show tasks and right responses, after the instructions."""
    deterministic: ClassVar[bool] = False
    """True if the same actions in the same task give the same observations, so that a forked rollout can begin by
    repeating the actions of its parent."""
    typed_actions: ClassVar[bool] = False
    """True if the sessions are `ActingEnv`s, so that a recipe may choose the format of actions."""
    snapshots: ClassVar[bool] = False
    """True if the sessions are `RestorableEnv`s: a child of a running rollout then begins from a stored state."""
    generates_instructions: ClassVar[bool] = False
    """True if the sessions make instructions for tasks with the parameter `GENERATED`."""
    needs_browser: ClassVar[bool] = False
    """True if a run needs Chromium and fonts."""
    needs_desktop: ClassVar[bool] = False
    """True if a run needs an X server and desktop programs."""
    one_host: ClassVar[bool] = False
    """True if the sessions are machines that the recipe names, so that a second environment host would use the same
    ones."""
    judged_at_limit: bool = False
    """True if an episode that the policy does not end is judged at its `max_turns` only: a run with a lower
    `rollout.max_turns` is refused, since it would reward such episodes with 0 without judging them."""
    extra: ClassVar[str] = ""
    """Extra of Quartet that installs what the environment needs, for example `mcp`; empty for none."""
    first_settings: ClassVar[Mapping[str, Mapping[str, object]]] = MappingProxyType({})
    """Settings that `quartet init` adds to a first recipe, by section."""

    @property
    def chat_instructions(self) -> str:
        """Return the system's message for a chat model where `instructions` is empty: the form of an action. Return an
        empty text if the observations tell it."""
        return f"Respond with {self.grammar}." if self.grammar else ""

    @abstractmethod
    def families(self) -> list[str]:
        """Return the names of all task families. Raise `ConfigError` if the settings match none."""

    def session(self) -> Env:
        """Make a session."""
        raise NotImplementedError(f"{type(self).__name__} defines neither session() nor pool()")

    def pool(self, env: config.Env) -> EnvPool:
        """Return the pool of sessions. By default it makes a session at each `acquire`, at most `env.sessions` at once,
        and closes it at its release. Override this method to keep sessions that are expensive to make."""
        return SessionPool(self.session, env.sessions)

    def modules(self) -> list[str]:
        """Return the modules of `extra` that sessions import. A run without one of them fails; `quartet init`, `quartet
        train --dry-run` and `quartet doctor` name it."""
        return []

    def load_code(self, env: config.Env) -> None:
        """Load the user's code that a run loads in child processes only, such as reward functions. Raise `ConfigError`
        if it cannot be loaded. `quartet train --dry-run` calls this."""

    def undemonstrated(self) -> set[str]:
        """Return the families for which no demonstrations are used; their success is reported separately."""
        return set()

    def family_categories(self) -> Mapping[str, set[str]]:
        """Return named sets of families, such as infeasible ones; the success of each is reported beside the total."""
        return {}

    def num_train_tasks(self, family_name: str) -> int | None:
        """Return the number of training tasks of a family, whose seeds begin at 0; None if every seed is a task. Then
        `control.train_seeds_per_family` is the number."""
        return None

    def num_held_out_tasks(self, family_name: str) -> int | None:
        """Return the number of held-out tasks of a family, which an evaluation of more episodes repeats; None if every
        seed is a task."""
        return None

    def first_prompt(self, family_name: str) -> Sequence[Message]:
        """Return the messages of a family's first training task, if they need no session, for `quartet train
        --dry-run`; else nothing."""
        return ()

    def max_turns(self, family_name: str) -> int | None:
        """Return the number of turns that the hardest task of a family needs, with a margin; None if unknown.
        Evaluations apply it as turn limit, and so does training if a part of `control.horizon` does, such as
        `suite`."""
        return None

    def expert(self, family_name: str, seed: int) -> Expert | None:
        """Return a policy that solves the task; None if there is none. `quartet env check` runs it."""
        return None

    def wrong_expert(self, family_name: str, seed: int) -> Expert | None:
        """Return a policy that ends in a similar state but does not solve the task; None if there is none. `quartet env
        check` runs it."""
        return None
