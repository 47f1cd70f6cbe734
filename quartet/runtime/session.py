"""The phases of a run (`quartet.types.phase`): evaluate, train, evaluate again.

The current phase is stored in the ledger. A resumed run continues with the work that the ledger does not have yet.
Calls of the ledger are retried while its server is unreachable.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from quartet.access.token import forget_token
from quartet.config import Recipe
from quartet.errors import LedgerError
from quartet.files.disk import full_disk
from quartet.ledger import Ledger
from quartet.ledger.checkpoints import checkpoints_root
from quartet.ledger.database import drop_database
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT
from quartet.ledger.policy_folders import policies_root
from quartet.ledger.results import described, uncounted_warning
from quartet.report.display import LiveDisplay
from quartet.report.status import StatusReader
from quartet.run.run_dir import RunLock
from quartet.runtime.evaluations import admit_missing_evaluations
from quartet.runtime.placer.base import make_placer
from quartet.runtime.repeated_error import raise_if_repeated
from quartet.runtime.supervisor import SINK, Supervisor
from quartet.types.phase import ENDED, EVALUATING, STARTING, STOPPING, TRAINING

LOG = logging.getLogger(__name__)


class Session:
    """Context manager that owns the lock, the ledger, the module processes and the display of one run."""

    def __init__(self, recipe: Recipe, run_dir: Path, *, quiet: bool = False, hint: str = "") -> None:
        """Describe the session. Its display shows `hint` once the first modules are up."""
        self.recipe, self.run_dir, self._quiet, self._hint = recipe, run_dir, quiet, hint

    def __enter__(self) -> "Session":
        with ExitStack() as stack:
            stack.enter_context(RunLock(self.run_dir))  # first, so that two starts cannot create two ledgers
            forget_token(self.run_dir)  # left by a supervisor that was killed: modules that joined its run end
            placer = stack.enter_context(make_placer(self.recipe, self.run_dir))
            stack.callback(forget_token, self.run_dir)
            self.ledger = open_or_create(self.recipe, self.run_dir)
            stack.callback(self.ledger.close)
            self.ledger.trajectories.forget_errors()
            self.ledger.failing_tasks.forget()
            self.ledger.modules.end_all()
            self.ledger.policies.expect_engines(self.recipe.engine_modules)
            self._supervisor = stack.enter_context(Supervisor(self.recipe, self.run_dir, self.ledger, placer))
            self.outlast = self._supervisor.outlast
            self.display = LiveDisplay(StatusReader(self.run_dir, self.ledger, self.recipe), quiet=self._quiet)
            stack.enter_context(self.display)
            stack.callback(setattr, ANSWER_TIMEOUT, "report", ANSWER_TIMEOUT.report)
            ANSWER_TIMEOUT.report = self._report
            self._leave = stack.pop_all()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._leave.__exit__(*reason)

    def _run_until(self, condition: Callable[[], str | None]) -> str:
        """Supervise the modules until `condition` returns a reason, and return it.

        Raises the errors of `Supervisor.run_until`, and `RepeatedErrorError`.
        """

        def met() -> str | None:
            raise_if_repeated(self.recipe, self.ledger)
            return condition()

        return self._supervisor.run_until(met, self.display.tick)

    def train(self) -> None:
        """Train until a stop is requested; return at once if one has been requested already."""
        if self.outlast(self.ledger.stop_reason):
            return
        self._enter_phase(TRAINING, *self.recipe.serving_modules, *self.recipe.trainer_modules)
        reason = self._run_until(self.ledger.stop_reason)
        self.outlast(lambda: self.ledger.enter_phase(STOPPING))
        self._supervisor.finish(*self.recipe.trainer_modules, on_tick=self.display.tick)
        self.outlast(self.ledger.groups.cancel_unfinished)
        self.display.note(f"training ended: {reason}")

    def evaluate(self, when: str) -> None:
        """Evaluate on held-out tasks, greedily and at the training temperature.

        If the evaluation `when` is complete, nothing is evaluated again. If a full disk has ended the run, or does so
        meanwhile, the evaluation ends early and remains for the resumed run (`first_evaluation`).
        """
        if self.outlast(self.full_disk):
            return
        self._enter_phase(f"{EVALUATING}{when}", *self.recipe.serving_modules)
        self._run_until(lambda: "settled" if self.ledger.policies.latest_is_settled() else self.full_disk())
        tags = self.outlast(lambda: admit_missing_evaluations(self.recipe, self.ledger, when))
        waits = self.ledger.evaluations.unfinished
        self._run_until(lambda: self.full_disk() or (None if any(map(waits, tags)) else "done"))
        if full := self.outlast(self.full_disk):
            self.display.note(f"evaluation {when!r} ended early: {full}")
            return
        for tag in tags:
            results = self.outlast(lambda tag=tag: self.ledger.evaluations.results(tag))
            self.display.note(f"success {tag}: {described(results)}")
            if warning := uncounted_warning(results):
                self.ledger.event("evaluation_uncounted", tag=tag, warning=warning)
                self.display.note(f"warning: {warning}")

    def full_disk(self) -> str | None:
        """Return the run's stop reason if it is a full disk."""
        return full_disk(self.ledger.stop_reason())

    def end(self) -> None:
        """Enter the phase `ended`."""
        self.outlast(lambda: self.ledger.enter_phase(ENDED))

    def _report(self, text: str) -> None:
        """Report a message in the log and in the terminal."""
        LOG.warning("%s", text)
        self.display.note(text)

    def _enter_phase(self, phase: str, *modules: str) -> None:
        """Enter a phase once its modules are up; until then the phase is `starting`, without training time."""
        if not self.outlast(lambda: self._supervisor.are_up(*modules)):
            self.outlast(lambda: self.ledger.enter_phase(STARTING))
            self._supervisor.start(*modules, *(f"{SINK}{sink.name}" for sink in self.recipe.observe.sinks))
            self._run_until(lambda: "up" if self._supervisor.are_up(*modules) else self.ledger.stop_reason())
            if self._hint:
                self.display.note(self._hint)
                self._hint = ""
        self.outlast(lambda: self.ledger.enter_phase(phase))


def open_or_create(recipe: Recipe, run_dir: Path) -> Ledger:
    """Open the run's ledger, or create it with the initial weights of each policy as version 0.

    The caller must hold the run's lock. Raises `LedgerError` if the folder holds policies or checkpoints of a run whose
    ledger is missing: a new run would mistake them for its own.
    """
    if Ledger.exists(run_dir):
        ledger = Ledger.open(run_dir)
    else:
        _refuse_remains(run_dir)
        drop_database(run_dir)  # left by a start that was killed before it created the tables
        names = {"trained": recipe.trained_policies, "frozen": recipe.frozen_policies}
        ledger = Ledger.create(run_dir, seed=recipe.seed, **names, **recipe.ledger.model_dump())
    for name, one in recipe.policy_sources.items():
        if not ledger.of(name).policies.live():  # a new ledger, or a start killed between the two steps
            ledger.of(name).policies.register_initial(str(Path(one.source).resolve()))
    return ledger


def _refuse_remains(run_dir: Path) -> None:
    policies, checkpoints = policies_root(run_dir), checkpoints_root(run_dir)
    for folder, name in ((policies, "v[0-9]*"), (checkpoints, "step_*")):
        if any(folder.glob(name)) or any(folder.glob(f"*/{name}")):  # one folder per policy, if several are trained
            raise LedgerError(
                f"{run_dir} has trained policies or checkpoints ({folder.name}/), but its ledger is missing or empty",
                "restore the ledger from a backup, start over with --fresh, or start a new run from the newest policy "
                "in another folder (model.path)",
            )
