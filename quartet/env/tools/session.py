"""Session in which a policy calls the tools of a server, and then answers a row of a data set."""

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from quartet.actions.grammar import ActionError, parse_actions
from quartet.actions.malformed_call import refused_call
from quartet.actions.taken import taken
from quartet.env.dataset.rows import Row
from quartet.env.dataset.session import DatasetSession, merged
from quartet.env.reward import number
from quartet.env.tools.mcp_server import McpServer
from quartet.errors import ConfigError, EnvError, RewardError, nearest
from quartet.types import (
    Action,
    Done,
    Message,
    Observation,
    Outcome,
    StepResult,
    TakenAction,
    Task,
    Text,
    ToolCall,
)

USAGE = "call a tool, or give the answer"
READ_LOG = "read the server's log"
OVER = "not started: the time for the calls of a response was over"


class ToolSession:
    """One session. A response that begins no call is the answer, which the rewards of the data set score."""

    def __init__(
        self,
        answers: DatasetSession,
        row_of: Callable[[Task], Row],
        connect: Callable[[], McpServer],
        *,
        reset_tool: str,
        reward_tool: str,
        show_reset: bool,
        turn_limit: int,
        calls_seconds: float,
        reward_seconds: float,
    ) -> None:
        """Make a session. `show_reset` shows the result of `reset_tool` below the row; `reward_tool` is also asked
        after `turn_limit` turns without an answer. The calls of one response may take `calls_seconds`,
        the call of `reward_tool` may take `reward_seconds`."""
        self._answers, self._row_of, self._connect = answers, row_of, connect
        self._reset_tool, self._reward_tool = reset_tool, reward_tool
        self._show_reset, self._turn_limit = show_reset, turn_limit
        self._calls_seconds, self._reward_seconds = calls_seconds, reward_seconds
        self._server: McpServer | None = None

    async def reset(self, task: Task) -> Observation:
        """Show the row and the tools, on a server in its initial state: it is reset by its own tool, or is a new
        one."""
        self._row = self._row_of(task)
        if self._server is None or not self._reset_tool:
            await self.close()
            self._server = self._connect()
            await self._server.open()
        hidden = {self._reset_tool, self._reward_tool} - {""}
        if missing := hidden - {tool.function.name for tool in self._server.tools}:
            raise ConfigError(f"the MCP server has no tool {min(missing)!r}", nearest(min(missing), self._names()))
        begun = await self._begun() if self._reset_tool else ""
        self._tools = [tool for tool in self._server.tools if tool.function.name not in hidden]
        self._turns = 0
        seen = await self._answers.reset(task)
        if self._show_reset:
            *before, asked = seen.messages
            seen = replace(seen, messages=[*before, replace(asked, content=f"{asked.content}\n{begun}".strip())])
        return replace(seen, tools=self._tools)

    async def step(self, action: str) -> StepResult:
        """Perform calls in Quartet's grammar (`call NAME {...}`). A call that cannot be read is refused; any other
        response is the answer."""
        try:
            actions = parse_actions(action)
        except ActionError:
            actions = []
        if any(isinstance(one, ToolCall) for one in actions):
            return await self.act(actions)
        if refused := refused_call(action):
            return await self._unended(refused)
        return await self._answer(action, Text(text=action))

    async def act(self, actions: Sequence[Action]) -> StepResult:
        """Perform the calls of a response in order. `done "answer"` gives the answer."""
        messages, records = [], []
        ends_at = time.monotonic() + self._calls_seconds
        for action in actions:
            if isinstance(action, Done | Text):
                answer = action.answer if isinstance(action, Done) else action.text
                result = await self._answer(answer, action)
                if not result.terminated:  # the next response reads what the calls returned
                    result = replace(result, observation=replace(result.observation, messages=messages))
                return replace(result, actions=[*records, *result.actions])
            if isinstance(action, ToolCall):
                text, outcome = await self._called(action, ends_at - time.monotonic())
                messages.append(Message("tool", text, action.name))
                error = "" if outcome is Outcome.DONE else text
                records.append(replace(taken(action, error), outcome=outcome))
            else:
                records.append(taken(action, USAGE))
        unread = any(record.outcome is not Outcome.DONE for record in records) and not messages
        seen = Observation(goal="", text="", messages=messages, error=USAGE if unread else "")
        return await self._unended(StepResult(observation=seen, reward=0.0, terminated=False, actions=records))

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _called(self, call: ToolCall, seconds: float) -> tuple[str, Outcome]:
        """Return the result of a call as text, or why it was not done within the time that is left."""
        names = [tool.function.name for tool in self._tools]
        if seconds <= 0:
            return OVER, Outcome.ENDED
        if call.name not in names:
            return f"no tool {call.name[:50]}: {', '.join(names)}", Outcome.REFUSED
        try:
            text, failed = await self._connected().call(call.name, call.arguments, seconds)
        except TimeoutError:
            return f"{call.name} did not answer within {seconds:.2g} s", Outcome.TIMEOUT
        return text, Outcome.REFUSED if failed else Outcome.DONE

    async def _answer(self, answer: str, action: Action) -> StepResult:
        """Score the answer, and add the reward that the server reports."""
        result = await self._answers.step(answer)
        result = await (self._rewarded(result) if result.terminated else self._unended(result))
        return replace(result, actions=[TakenAction(action=action, canonical=answer)])

    async def _unended(self, result: StepResult) -> StepResult:
        """Count a turn without the final answer. The last one ends the episode with the server's reward."""
        self._turns += 1
        if not self._reward_tool or self._turns < self._turn_limit:
            return result
        return await self._rewarded(replace(result, truncated=True))

    async def _rewarded(self, result: StepResult) -> StepResult:
        """Add the reward that the server reports, if it reports one."""
        if not self._reward_tool:
            return result
        reported = {self._reward_tool: number(await self._reported())}
        rewards = merged([result.rewards, reported])
        total, success = self._answers.judged(rewards)
        return replace(result, reward=total, rewards=rewards, info={"success": success})

    async def _begun(self) -> str:
        """Return the result of the reset tool. Raise `EnvError` if it fails: then no episode has begun."""
        text, failed = await self._own_call(self._reset_tool)
        if failed:
            raise EnvError(f"the MCP server's tool {self._reset_tool!r} failed: {text:.300}", READ_LOG)
        return text

    async def _reported(self) -> str:
        """Return the result of the reward tool. Raise `RewardError` if it fails or does not answer in time."""
        name, seconds = self._reward_tool, self._reward_seconds
        try:
            text, failed = await self._own_call(name, seconds)
        except TimeoutError as error:
            raise RewardError(
                f"the MCP server's tool {name!r} did not answer within {seconds:g} s", READ_LOG
            ) from error
        if failed:
            raise RewardError(f"the MCP server's tool {name!r} failed: {text:.300}", READ_LOG)
        return text

    async def _own_call(self, name: str, seconds: float | None = None) -> tuple[str, bool]:
        """Call a tool that the policy does not see, with the columns of the row that it takes."""
        server = self._connected()
        schema = next(tool.function.parameters for tool in server.tools if tool.function.name == name)
        taken_columns = {key: self._row[key] for key in schema.get("properties", {}) if key in self._row}
        return await server.call(name, taken_columns, seconds)

    def _connected(self) -> McpServer:
        if self._server is None:
            raise EnvError("a session of tools was stepped before its first reset", "call reset(task) first")
        return self._server

    def _names(self) -> list[str]:
        return [tool.function.name for tool in self._connected().tools]
