"""Files in which the episodes of each task begin: built once per process, and proved by the task's own solution."""

import shlex
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from quartet.env.harbor.dockerfile import CONTEXT, Step
from quartet.env.harbor.judging import judge
from quartet.env.harbor.sandbox import Sandbox
from quartet.env.harbor.solution import SOLVE, is_solvable
from quartet.env.harbor.task import HarborTask
from quartet.env.scratch import ScratchFolder
from quartet.errors import EnvError, RewardError


class UnplayableError(EnvError):
    """A task cannot be built or solved on this machine, however often it is tried."""


class Images:
    """Built files by task. Sessions of several threads share them."""

    def __init__(
        self, memory_megabytes: int, programs: Sequence[str], test_seconds: float, *, require_solution: bool
    ) -> None:
        """With `require_solution`, a task begins only if its own solution gets a reward of 1 here."""
        self._memory_megabytes, self._programs = memory_megabytes, programs
        self._test_seconds, self._require_solution = test_seconds, require_solution
        self._locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._scratch = ScratchFolder("quartet-harbor-images-")
        self._built: dict[Path, Path | UnplayableError] = {}

    def begin(self, task: HarborTask) -> Sandbox:
        """Return the files of a new episode. Raise `EnvError` if the task cannot be built or solved here."""
        with self._locks[task.folder]:
            if task.folder not in self._built:
                self._built[task.folder] = self._build(task)
            built = self._built[task.folder]
        if isinstance(built, UnplayableError):
            raise EnvError(built.what, built.advice)
        return self._copy(task, built)

    def _build(self, task: HarborTask) -> Path | UnplayableError:
        """Return the folder of the files after the Dockerfile's steps, or the error of a task that is not tried again.

        Raise `EnvError` for any other failure, such as a full disk or a command that took too long: the next episode
        may succeed.
        """
        sandbox = Sandbox(self._memory(task), self._programs)
        try:
            self._run_steps(task, sandbox)
            if self._require_solution:
                self._prove(task, sandbox)
            return sandbox.root.rename(tempfile.mkdtemp(dir=self._scratch.path))
        except UnplayableError as error:
            return error
        except RewardError as error:
            raise EnvError(error.what, error.advice) from error
        finally:
            sandbox.remove()

    def _run_steps(self, task: HarborTask, sandbox: Sandbox) -> None:
        enters = Step("/", f"cd -- {shlex.quote(task.workdir)}", task.variables)
        context = sandbox.folder("context", task.folder / "environment")
        for step in (*task.dockerfile.steps, enters):
            ran = sandbox.run(
                step.command,
                step.workdir,
                task.config.environment.build_timeout_sec,
                variables=step.variables,
                shown={CONTEXT: context},
                characters=600,
            )
            if ran.status != 0:
                ended = "did not end" if ran.status is None else f"ended with status {ran.status}"
                kind = EnvError if ran.status is None else UnplayableError
                raise kind(
                    f"the task {task.folder.name} cannot be built here: `{step.command:.80}` {ended}: {ran.output}",
                    "without Docker a task has this machine's programs and no network: leave it out",
                )

    def _prove(self, task: HarborTask, image: Sandbox) -> None:
        """Raise `UnplayableError` unless the task's solution gets a reward of 1; `EnvError` if it took too long."""
        if not is_solvable(task):
            raise UnplayableError(
                f"the task {task.folder.name} has no solution/solve.sh, so it is unknown whether it can be solved here",
                "leave it out, or set env.require_solution = false",
            )
        trial = self._copy(task, image.root)
        try:
            ran = trial.run(
                SOLVE,
                task.workdir,
                self._test_seconds,
                variables=task.variables | task.config.solution.env,
                shown={"/solution": trial.folder("solution", task.folder / "solution")},
                characters=600,
            )
            reward = sum(judge(task, trial, self._test_seconds).values())
        finally:
            trial.remove()
        if not reward >= 1.0:
            ended = "did not end" if ran.status is None else f"ended with status {ran.status}"
            kind = EnvError if ran.status is None else UnplayableError
            raise kind(
                f"the solution of {task.folder.name} gets the reward {reward:g} here, and {ended}: {ran.output}",
                "without Docker a task has this machine's programs and no network: leave it out",
            )

    def _copy(self, task: HarborTask, root: Path) -> Sandbox:
        return Sandbox(self._memory(task), self._programs, root)

    def _memory(self, task: HarborTask) -> int:
        """Return the memory limit of a task's processes in MiB."""
        return min(self._memory_megabytes, task.config.environment.memory_mb or self._memory_megabytes)
