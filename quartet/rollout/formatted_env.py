"""Environment session whose responses have the recipe's format of actions."""

from msgspec.structs import replace

from quartet.actions.error import ActionError, UnwritableError
from quartet.actions.format.base import ActionFormat
from quartet.env.base import AGENT, SPEAKER, Env, acting, restorable
from quartet.policy.renderer import Renderer
from quartet.types import Action, Observation, Outcome, StepResult, TakenAction, Task, Text
from quartet.types.frame import Frame, Screen


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
        """Store the state of the episode."""
        return await restorable(self._env).snapshot()

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        return self._seen(await restorable(self._env).restore(task, snapshot))

    async def close(self) -> None:
        await self._env.close()

    def _shown(self, result: StepResult) -> StepResult:
        self._speaker = result.info.get(SPEAKER, AGENT)
        if result.observation.pictures:  # otherwise the policy still has the last picture
            self._seen(result.observation)
        return result

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
