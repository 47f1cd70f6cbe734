"""Environment session whose responses have the recipe's format of actions."""

from msgspec import DecodeError, Struct, msgpack
from msgspec.structs import replace

from quartet.actions.error import ActionError, UnwritableError
from quartet.actions.format.base import ActionFormat
from quartet.env.base import AGENT, SPEAKER, Env, acting, restorable
from quartet.errors import EnvFaultError
from quartet.policy.renderer import Renderer
from quartet.types import Action, Observation, Outcome, StepResult, TakenAction, Task, Text
from quartet.types.frame import Frame, Screen


class _State(Struct, frozen=True, kw_only=True):
    """State of a session: that of its environment, and what it has to know to read the next response."""

    env: bytes
    picture: Frame
    speaker: str


class FormattedEnv:
    """Session that reads responses in a format, so that agent loops need no code for formats.

    A response without a valid action changes nothing, and its observation has the error.
    """

    def __init__(self, env: Env, actions: ActionFormat, renderer: Renderer) -> None:
        self._env, self._format, self._renderer = env, actions, renderer
        self._picture: Frame = Screen()
        self._speaker = AGENT

    async def reset(self, task: Task) -> Observation:
        self._speaker = AGENT
        seen = self._seen(await self._env.reset(task))
        return replace(seen, prepared=[self._translated(taken) for taken in seen.prepared])

    async def step(self, action: str) -> StepResult:
        """Perform the actions of a response. What another role says is text, whatever it contains."""
        if self._speaker != AGENT:
            return self._shown(await self._env.step(action))
        try:
            actions = self._format.parse(action, self._picture)
        except ActionError as error:
            return self._shown(_unreadable(await acting(self._env).act([]), str(error)))
        match actions:
            case [Text(text=text)]:
                return self._shown(await self._env.step(text))
        result = await acting(self._env).act(actions)
        return self._shown(replace(result, actions=[self._noted(taken) for taken in result.actions]))

    async def snapshot(self) -> bytes:
        """Store the state of the episode, with the frame of the last picture and the next speaker."""
        env = await restorable(self._env).snapshot()
        return msgpack.encode(_State(env=env, picture=self._picture, speaker=self._speaker))

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        """Begin in a stored state. Raise `EnvFaultError` if this session did not store it."""
        try:
            state = msgpack.decode(snapshot, type=_State)
        except DecodeError as error:
            raise EnvFaultError(f"another version of Quartet stored the state of {task.key}: {error}") from error
        self._picture, self._speaker = state.picture, state.speaker
        return self._pictured(await restorable(self._env).restore(task, state.env))

    async def close(self) -> None:
        await self._env.close()

    def _shown(self, result: StepResult) -> StepResult:
        self._speaker = result.info.get(SPEAKER, AGENT)
        self._pictured(result.observation)
        return result

    def _pictured(self, observation: Observation) -> Observation:
        """Note the picture of an observation within the episode; without one the policy still has the last."""
        return self._seen(observation) if observation.pictures else observation

    def _seen(self, observation: Observation) -> Observation:
        self._picture = self._renderer.picture_frame(observation.pictures)
        return observation

    def _noted(self, taken: TakenAction) -> TakenAction:
        """Return the record with the action in the notation of the format, as later prompts repeat it."""
        return replace(taken, canonical=self._written(taken.action))

    def _translated(self, taken: TakenAction) -> TakenAction:
        """Return the record of an expert's action in the notation of the format, or in the expert's if it cannot say
        it: that is the environment's own grammar, which a policy without a format writes, too."""
        return replace(taken, canonical=self._noted(taken).canonical or taken.canonical)

    def _written(self, action: Action | None) -> str:
        if action is None:
            return ""
        try:
            return self._format.write([action])
        except UnwritableError:
            return ""


def _unreadable(result: StepResult, error: str) -> StepResult:
    observation = replace(result.observation, error=error)
    return replace(result, observation=observation, actions=[TakenAction(outcome=Outcome.PARSE_ERROR, error=error)])
