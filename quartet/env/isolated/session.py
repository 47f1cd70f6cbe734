"""Session in a child process, which speaks the environment protocol over its standard streams."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from quartet import config
from quartet.env.child_process import ChildFailedError, ChildProcess
from quartet.env.deadlines import Deadlines
from quartet.env.isolated.child import Setup, Started
from quartet.env.protocol import ObservationData, ResetData, SnapshotData, StepData, encode, read_answer
from quartet.errors import EnvError, SetupError
from quartet.registry import find, imported_plugins
from quartet.types import Action, Observation, StepResult, Task

T = TypeVar("T", bound=Struct)
CHILD = "quartet.env.isolated.child"


class IsolatedSession:
    """One session and its process. It does everything that sessions of the environment do."""

    def __init__(self, env: config.Env) -> None:
        self._env = env
        self._child = ChildProcess(CHILD, env.session_memory_megabytes)

    @property
    def healthy(self) -> bool:
        """True while the process runs and answers."""
        return self._child.running

    async def start(self) -> None:
        """Start the process and make the session in it. Raise `SetupError` if it cannot make one."""
        part = find("env", self._env.name)
        own = {"name": f"{part.__module__}:{part.__qualname__}", "sessions": 1, "hosts": 1}
        setup = Setup(env=self._env.model_dump(mode="json") | own, plugins=list(imported_plugins))
        await self._child.start()
        try:
            answer = await self._child.ask(msgspec.json.encode(setup), self._env.start_timeout_seconds)
        except ChildFailedError as error:
            raise SetupError(
                f"the environment {self._env.name!r} cannot be made in a process of its own: the process {error}",
                "raise env.session_memory_megabytes or env.start_timeout_seconds, or set the former to 0 to see the "
                "environment's own error",
            ) from error
        if problem := msgspec.json.decode(answer, type=Started).error:
            await self.close()
            raise SetupError(f"the environment {self._env.name!r} cannot be made: {problem}")

    async def reset(self, task: Task) -> Observation:
        return await self._begin(task, None)

    async def restore(self, task: Task, snapshot: bytes) -> Observation:
        return await self._begin(task, snapshot)

    async def step(self, action: str) -> StepResult:
        return (await self._ask("step", ObservationData, StepData(action=action))).step_result()

    async def act(self, actions: Sequence[Action]) -> StepResult:
        data = StepData(action="", actions=list(actions))
        return (await self._ask("step", ObservationData, data)).step_result()

    async def snapshot(self) -> bytes:
        return (await self._ask("snapshot", SnapshotData)).snapshot

    async def close(self) -> None:
        """End the process, and all processes that it started."""
        await self._child.end()

    async def _begin(self, task: Task, snapshot: bytes | None) -> Observation:
        data = ResetData(
            env=task.env,
            family=task.family,
            seed=task.seed,
            params=task.params,
            episode_id=task.key,
            snapshot=snapshot,
        )
        return (await self._ask("reset", ObservationData, data)).observation

    async def _ask(self, kind: str, answer_type: type[T], data: Struct | None = None) -> T:
        if not self.healthy:
            raise EnvError(f"{kind}: the session's process has ended")
        try:
            limits = Deadlines.of(self._env)
            limit_seconds = limits.reset if kind == "reset" else limits.step
            answer = await self._child.ask(encode(kind, data).encode(), limit_seconds)
        except ChildFailedError as error:
            raise EnvError(
                f"{kind}: the session's process {error}",
                "mend the environment, or raise env.session_memory_megabytes or env.step_timeout_seconds",
            ) from error
        return read_answer(answer, answer_type)
