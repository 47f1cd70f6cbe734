"""Session of a server of OpenEnv: its observations as text, its tools as tools, its null rewards as no reward."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from quartet.actions.error import ActionError
from quartet.actions.grammar import parse_actions
from quartet.actions.taken import canonical
from quartet.env.openenv.actions import FieldReader
from quartet.env.openenv.server import OpenEnvServer, RejectedError
from quartet.env.reward import number
from quartet.errors import ConfigError, RewardError, nearest
from quartet.types import (
    Action,
    Function,
    Message,
    Observation,
    Outcome,
    StepResult,
    TakenAction,
    Task,
    Text,
    Tool,
    ToolCall,
)


class OpenEnvSession:
    """One session; its connection is kept over episodes."""

    def __init__(
        self, server: OpenEnvServer, tasks: Mapping[str, dict[str, Any]], *, shown: Sequence[str], text_field: str
    ) -> None:
        self._server, self._tasks, self._shown, self._text_field = server, tasks, shown, text_field
        self._tools: list[Tool] = []

    async def reset(self, task: Task) -> Observation:
        """Start an episode with the task's seed and the fields of its family."""
        if task.family not in self._tasks:
            raise ConfigError(f"unknown family {task.family!r}", nearest(task.family, self._tasks))
        await self._server.open()
        self._reader = FieldReader(self._server.action_schema, self._text_field)
        fields = {"seed": task.seed, "episode_id": task.key, **self._tasks[task.family], **task.params}
        try:
            answer = await self._server.ask("reset", fields)
            if self._reader.calls_tools:
                self._tools = _tools((await self._server.ask("step", {"type": "list_tools"}))["observation"])
        except RejectedError as error:
            raise ConfigError(f"the server rejects the reset: {error}", f"check env.tasks.{task.family}") from error
        self._task, self._rewarded = task, False
        self._seen = self._observe(answer)
        return replace(self._seen, tools=self._tools)

    async def step(self, action: str) -> StepResult:
        """Perform a response: a call of a tool in Quartet's grammar, or the fields of an action."""
        try:
            actions = parse_actions(action)
        except ActionError:
            actions = []
        if self._tools and any(isinstance(one, ToolCall) for one in actions):
            return await self.act(actions)
        return await self.act([Text(text=action)])

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform the actions of a response in order, until the episode ends."""
        messages, records, reward, ended = [], [], 0.0, False
        for action in actions:
            answer, record = await self._perform(action)
            records.append(record)
            reward, ended = reward + self._reward(answer), bool(answer.get("done"))
            if isinstance(action, ToolCall):
                messages.append(Message("tool", record.error or _result(answer["observation"]), action.name))
            elif not record.error:
                self._seen = self._observe(answer)
            if ended:
                break
        seen = replace(self._seen, error="".join(record.error for record in records[-1:]))
        if messages:
            seen = Observation(goal="", text="", messages=messages)
        return StepResult(observation=seen, reward=reward, terminated=ended, actions=records)

    async def close(self) -> None:
        await self._server.close()

    async def _perform(self, action: Action) -> tuple[dict[str, Any], TakenAction]:
        """Return the server's answer and the record of an action; the answer to a wrong one is empty."""
        text = action.text if isinstance(action, Text) else canonical(action)
        if isinstance(action, ToolCall):
            fields = {"type": "call_tool", "tool_name": action.name, "arguments": action.arguments}
        else:
            try:
                fields = self._reader.read(text)
            except ActionError as error:
                return {}, TakenAction(action=action, outcome=Outcome.PARSE_ERROR, error=str(error))
        try:
            answer = await self._server.ask("step", fields)
        except RejectedError as error:
            return {}, TakenAction(action=action, canonical=text, outcome=Outcome.REFUSED, error=str(error))
        error = _tool_error(answer["observation"]) if isinstance(action, ToolCall) else ""
        outcome = Outcome.REFUSED if error else Outcome.DONE
        return answer, TakenAction(action=action, canonical=text, outcome=outcome, error=error)

    def _reward(self, answer: Mapping[str, Any]) -> float:
        """Return the reward of a step; null is 0. Raise `RewardError` if no step of an episode had one."""
        reward = answer.get("reward")
        self._rewarded |= reward is not None
        if answer.get("done") and not self._rewarded:
            raise RewardError(f"the server rewarded no step of {self._task.key}", "let it reward the last step")
        return 0.0 if reward is None else number(reward)

    def _observe(self, answer: Mapping[str, Any]) -> Observation:
        """Return an observation: the text of its only shown field, or a line for each."""
        fields = {
            name: value for name, value in answer["observation"].items() if name in self._shown or not self._shown
        }
        fields = {name: value for name, value in fields.items() if value is not None and name != "metadata"}
        lines = [f"{name}: {_text(value)}" for name, value in fields.items()]
        text = _text(*fields.values()) if len(fields) == 1 else "\n".join(lines)
        return Observation(goal=self._reader.usage and f"Write {self._reader.usage}.", text=text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tools(observation: Mapping[str, Any]) -> list[Tool]:
    return [
        Tool(function=Function(name=one["name"], description=one["description"], parameters=one["input_schema"]))
        for one in observation["tools"]
    ]


def _tool_error(observation: Mapping[str, Any]) -> str:
    error = observation.get("error")
    return str(error["message"]) if error else ""


def _result(observation: Mapping[str, Any]) -> str:
    """Return the result of a tool as text."""
    match observation:
        case {"result": {"data": data}} if data is not None:
            return _text(data)
        case {"result": {"content": [*parts]}}:
            return "\n".join(part.get("text", f"[{part.get('type')}]") for part in parts)
    return _text(observation.get("result"))
