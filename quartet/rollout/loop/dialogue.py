"""The loop `dialogue`: an agent works, and another policy speaks as the user whom it serves.

Each has a conversation of its own that only grows. The agent may take several turns, such as calls of tools, before it
speaks to the user.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from quartet.config import Recipe
from quartet.config.section import Section
from quartet.env.base import AGENT, SPEAKER, USER, Env
from quartet.errors import ConfigError, nearest
from quartet.policy.prompt import turn_messages
from quartet.rollout.client import ModelClient
from quartet.rollout.episode import Episode, ended, summed
from quartet.rollout.history.base import appended
from quartet.rollout.loop.base import AgentLoop, Limits, first
from quartet.types import Message, Status, Task, Trajectory, Turn


class DialogueLoop(AgentLoop):
    """The first trained policy is the agent, and another policy its user.

    The environment says who responds next in `info["speaker"]`. Turn limits count the agent's turns. Both trajectories
    have the rewards of the whole dialogue; those of a frozen user are not trained on.
    """

    class Settings(Section):
        user: str = USER
        """Policy that speaks as the user: the name of its table `[policies.NAME]`, usually with `trained = false`."""

    settings: Settings
    source = "Zhao et al. 2025, MUA-RL: Multi-turn User-interacting Agent RL"

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        names = list(recipe.policy_sources)
        if settings.user not in names:
            raise ConfigError(
                f"the loop 'dialogue' has the user {settings.user!r}, but the recipe has no such policy",
                nearest(settings.user, names),
            )
        agent, *others = recipe.trained_policies
        if agent == settings.user or set(others) - {settings.user}:
            raise ConfigError(
                f"the loop 'dialogue' trains the agent and perhaps the user, not {recipe.trained_policies}",
                "list the agent first, and set trained = false for policies that do not act",
            )

    async def run(self, task: Task, env: Env, models: Mapping[str, ModelClient], limits: Limits) -> list[Trajectory]:
        agent, user = (Episode(task, env, model, limits) for model in (first(models), models[self.settings.user]))
        success: list[bool] = []

        async def converse() -> Status:
            seat, observation = agent, await env.reset(task)
            while len(agent.turns) < limits.max_turns or seat is user:
                result = await seat.take_turn(observation, appended(seat, observation))
                if "success" in result.info:
                    success[:] = [bool(result.info["success"])]
                if result.terminated:
                    return Status.COMPLETED
                if result.truncated:
                    break
                seat, observation = user if result.info.get(SPEAKER) == USER else agent, result.observation
            return Status.TRUNCATED_TURNS

        status, seconds = await ended(converse(), limits)
        rewards = summed(turn.rewards for seat in (agent, user) for turn in seat.turns)
        known = {"rewards": rewards, "success": success[0] if success else sum(rewards.values()) >= 1.0}
        return [
            replace(seat.trajectory(status, seconds), **known, role=role, part=seat.model.policy)
            for role, seat in ((AGENT, agent), (USER, user))
        ]

    def chats(self, turns: Sequence[Turn]) -> list[list[Message]]:
        """Return the conversation of one of both."""
        return [
            [
                one
                for turn in turns
                for one in (*turn_messages(turn.observation, []), Message("assistant", turn.response))
            ]
        ]
