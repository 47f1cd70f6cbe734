"""Session of a task of Harbor; its methods are plain functions, which run in a thread of the session."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from quartet.actions.grammar import parse_calls
from quartet.actions.malformed_call import refused_call
from quartet.actions.taken import canonical
from quartet.env.harbor.images import Images
from quartet.env.harbor.judging import judge
from quartet.env.harbor.sandbox import MAX_COMMAND_BYTES, DamagedError, Sandbox
from quartet.env.harbor.task import HarborTask
from quartet.errors import EnvError
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

BASH = Tool(
    function=Function(
        name="bash",
        description="Run a shell command and return what it prints.",
        parameters={
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    )
)
OVER = "not started: the time for the commands of a response was over"
MALFORMED = 'write call bash {"command": "..."}'


class HarborSession:
    """One session. A response without a call of `bash` ends the episode, and the task's tests reward it."""

    def __init__(
        self,
        task_of: Callable[[Task], HarborTask],
        images: Images,
        *,
        command_seconds: float,
        test_seconds: float,
        turn_limit: int,
        characters: int,
    ) -> None:
        self._task_of, self._images = task_of, images
        self._command_seconds, self._test_seconds = command_seconds, test_seconds
        self._turn_limit, self._characters = turn_limit, characters
        self._sandbox: Sandbox | None = None
        self._closed, self._lock = False, threading.Lock()

    def reset(self, task: Task) -> Observation:
        """Show the instruction, in files as the Dockerfile makes them."""
        self._release()
        self._task, self._turns = self._task_of(task), 0
        begun = self._images.begin(self._task)
        with self._lock:
            if not self._closed:
                self._sandbox = begun
            closed = self._closed
        if closed:  # at the limit of a reset, while the task was built
            begun.remove()
            raise EnvError("the session was closed during its reset", "raise env.reset_timeout_seconds")
        return Observation(goal="", text="", messages=[Message("user", self._task.instruction)], tools=[BASH])

    def step(self, action: str) -> StepResult:
        """Perform the calls of a response in Quartet's grammar. A response without a call is the answer."""
        calls = parse_calls(action)
        if not calls and (refused := refused_call(action, MALFORMED)):
            return self._turn(refused.observation.messages, refused.actions)
        return self.act(calls or [Text(text=action)])

    def act(self, actions: Sequence[Action]) -> StepResult:
        """Run the commands of a response in order, until it ends the episode."""
        messages, records = list[Message](), list[TakenAction]()
        ends_at = time.monotonic() + self._command_seconds
        for action in actions:
            if not isinstance(action, ToolCall):
                text = action.text if isinstance(action, Text) else canonical(action)
                return self._judged([*records, TakenAction(action=action, canonical=text)])
            left = ends_at - time.monotonic()
            text, outcome = self._called(action, left) if left > 0 else (OVER, Outcome.ENDED)
            error = "" if outcome is Outcome.DONE else text
            records.append(TakenAction(action=action, canonical=canonical(action), outcome=outcome, error=error))
            messages.append(Message("tool", f"error: {text}" if error else text, action.name))
        return self._turn(messages, records)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            self._closed = True
        self._release()

    def _called(self, call: ToolCall, seconds: float) -> tuple[str, Outcome]:
        """Return what a call of the agent printed, or why it was not done."""
        if problem := _problem(call):
            return problem, Outcome.REFUSED
        try:
            ran = self._files().run(
                call.arguments["command"],
                self._task.workdir,
                seconds,
                variables=self._task.variables,
                characters=self._characters,
            )
        except DamagedError as error:
            return error.what, Outcome.REFUSED
        if ran.status is None:
            return f"{ran.output}\nkilled after {seconds:.2g} s".lstrip(), Outcome.TIMEOUT
        return ran.output + (f"\n[exit status {ran.status}]" if ran.status else ""), Outcome.DONE

    def _turn(self, messages: list[Message], records: list[TakenAction]) -> StepResult:
        """Return the results of a turn; the last turn of the episode is rewarded like the answer."""
        self._turns += 1
        if self._turns >= self._turn_limit:
            return self._judged(records)
        seen = Observation(goal="", text="", messages=messages)
        return StepResult(observation=seen, reward=0.0, terminated=False, actions=records)

    def _judged(self, records: list[TakenAction]) -> StepResult:
        """Run the tests, which end the episode."""
        rewards = judge(self._task, self._files(), self._test_seconds)
        reward = sum(rewards.values())
        return StepResult(
            observation=Observation(goal="", text=""),
            reward=reward,
            rewards=rewards,
            terminated=True,
            info={"success": reward >= 1.0},
            actions=records,
        )

    def _files(self) -> Sandbox:
        if self._closed:
            raise EnvError("the session was closed during its step", "raise env.step_timeout_seconds")
        if self._sandbox is None:
            raise EnvError("a task of Harbor was stepped before its first reset", "call reset(task) first")
        return self._sandbox

    def _release(self) -> None:
        with self._lock:
            ended, self._sandbox = self._sandbox, None
        if ended is not None:
            ended.remove()


def _problem(call: ToolCall) -> str:
    """Return why a call cannot be done; empty if it can."""
    command = call.arguments.get("command")
    if call.name != "bash" or not isinstance(command, str) or "\0" in command or call.arguments.keys() != {"command"}:
        return f"no such call: {MALFORMED}"
    too_long = len(command.encode()) > MAX_COMMAND_BYTES
    return f"the command is longer than {MAX_COMMAND_BYTES:,} bytes" if too_long else ""
