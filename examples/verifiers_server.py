"""Serve a taskset of verifiers (v1) over OpenEnv's session protocol, from a virtual environment of its own.

    VENV/bin/python verifiers_server.py MODULE:TASKSET --port 8000

The environment `openenv` plays it. One response answers one task, and the task's own rewards score it. Tasks that need
tools, a container or another runtime are refused. Held-out seeds have tasks that no training seed has.
"""

import argparse
import importlib
import inspect
import itertools
import json
import sys
from collections.abc import Sequence
from typing import Any

from aiohttp import WSMsgType, web
from verifiers import v1 as vf  # pyright: ignore[reportMissingImports]

FIRST_HELD_OUT_SEED = 1_000_000
ACTION = {"type": "object", "properties": {"response": {"type": "string"}}, "required": ["response"]}


class Tasks:
    """The tasks of a taskset: those for training, then those that only held-out seeds draw."""

    def __init__(self, name: str, limit: int, held_out_share: float) -> None:
        module, _, attribute = name.partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        config = inspect.signature(kind.__init__).parameters["config"].annotation
        config = config if inspect.isclass(config) else vf.TasksetConfig
        taskset = kind(config())
        if kind.toolsets(taskset.config):
            raise SystemExit(f"{name} needs tools, which this server does not start")
        self.all = list(itertools.islice(taskset, limit))
        for task in self.all[:1]:
            _refuse_runtime(task)
        self._training = round(len(self.all) * (1 - held_out_share))
        if not 0 < self._training < len(self.all):
            parts = f"{self._training} for training and {len(self.all) - self._training} held out"
            raise SystemExit(f"{name} has {parts}: change --held-out-share or raise --limit, so that both have tasks")

    def of(self, seed: int) -> Any:
        """Return the task of a seed."""
        if seed < FIRST_HELD_OUT_SEED:
            return self.all[seed % self._training]
        return self.all[self._training + seed % (len(self.all) - self._training)]


def _refuse_runtime(task: Any) -> None:
    """Exit if a task cannot be scored from its response alone."""
    scoring = [*task.hooks("reward"), *(judge.score for judge in task.plugged_judges())]
    rewards = [one for one in scoring if "runtime" in inspect.signature(one).parameters]
    if task.NEEDS_CONTAINER or task.toolsets(task.config) or rewards:
        raise SystemExit(f"{type(task).__name__} needs tools or a runtime, which this server does not start")


def prompt_of(task: Any) -> list[Any]:
    """Return the messages of a task."""
    system = [vf.SystemMessage(content=task.data.system_prompt)] if task.data.system_prompt else []
    prompt = task.data.prompt
    return [*system, *([vf.UserMessage(content=prompt)] if isinstance(prompt, str) else prompt or [])]


async def score(task: Any, response: str) -> dict[str, float]:
    """Return the rewards of a response, which the task's own functions compute from a trace. Raise `TaskError` if one
    of them is missing, which must not count as 0."""
    messages = [*prompt_of(task), vf.AssistantMessage(content=response)]
    last = len(messages) - 1
    trace = vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=[
            vf.MessageNode(message=message, parent=place - 1 if place else None, sampled=place == last)
            for place, message in enumerate(messages)
        ],
        is_completed=True,
        ok=True,
    )
    await task.score(trace)
    missing = [name for name, one in trace.rewards.items() if one is None]
    if missing or not trace.rewards:
        raise vf.TaskError(f"no value of {', '.join(missing)}" if missing else "the task gave no reward")
    return {name: one.value for name, one in trace.rewards.items()}


class Session:
    """One session: an episode is one response to one task."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks, self._task = tasks, None
        self._state = {"episode_id": None, "step_count": 0}

    async def answer(self, message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return type and data of the answer to a message."""
        data = message.get("data", {})
        match message.get("type"):
            case "reset":
                self._task = self._tasks.of(data.get("seed") or 0)
                self._state = {"episode_id": data.get("episode_id"), "step_count": 0}
                text = "\n\n".join(str(one.content) for one in prompt_of(self._task))
                return "observation", {"observation": {"text": text}, "reward": None, "done": False}
            case "step" if self._task is None:
                return _error("SESSION_ERROR", "no episode is running: send reset first")
            case "step" if not isinstance(data.get("response"), str):
                return _error("VALIDATION_ERROR", "response: a text is required")
            case "step":
                rewards = await score(self._task, data["response"])
                self._task, self._state["step_count"] = None, 1
                seen = {"observation": {"text": ""}, "reward": sum(rewards.values()), "done": True}
                return "observation", {**seen, "metadata": {"rewards": rewards}}
            case "state":
                return "state", self._state
        return _error("UNKNOWN_TYPE", f"unknown message type {message.get('type')!r}")


def _error(code: str, text: str) -> tuple[str, dict[str, Any]]:
    return "error", {"code": code, "message": text}


def make_app(tasks: Tasks) -> web.Application:
    """Return the server of these tasks."""

    async def converse(request: web.Request) -> web.WebSocketResponse:
        socket, session = web.WebSocketResponse(), Session(tasks)
        await socket.prepare(request)
        async for received in socket:
            if received.type is not WSMsgType.TEXT or (message := json.loads(received.data)).get("type") == "close":
                break
            try:
                kind, data = await session.answer(message)
            except vf.TaskError as error:
                kind, data = _error("EXECUTION_ERROR", f"the reward could not be computed: {error}")
            await socket.send_json({"type": kind, "data": data})
        return socket

    async def schema(_: web.Request) -> web.Response:
        return web.json_response({"action": ACTION, "observation": {"type": "object"}, "state": {"type": "object"}})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "healthy"})

    app = web.Application()
    app.add_routes([web.get("/ws", converse), web.get("/schema", schema), web.get("/health", health)])
    return app


def main(arguments: Sequence[str]) -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serve a taskset of verifiers over OpenEnv's session protocol.")
    parser.add_argument("taskset", help="module:Class")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--limit", type=int, default=10_000, help="Most tasks that are loaded.")
    parser.add_argument("--held-out-share", type=float, default=0.1)
    given = parser.parse_args(arguments)
    app = make_app(Tasks(given.taskset, given.limit, given.held_out_share))
    web.run_app(app, host="127.0.0.1", port=given.port, print=None)


if __name__ == "__main__":
    main(sys.argv[1:])
