"""Snapshot of a run for people and scripts: what each module does or waits for, and the progress of learning."""

import time
from pathlib import Path
from typing import Any

from msgspec import Struct, structs, to_builtins

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.manager.stop import training_so_far
from quartet.report.recent import recent_rates, recent_success
from quartet.report.run_progress import RunProgress, run_progress
from quartet.report.staleness import recent_lag
from quartet.report.standings import RECENT_ROLLOUTS, RECENT_TRAIN_STEPS, PolicyStanding, standings
from quartet.report.training_rollouts import TrainingRollouts
from quartet.types.phase import ENDED, EVALUATING, FINISHED, STARTING, STOPPING, wait_now

RATE_WINDOW_SECONDS = 20.0
NOT_RUNNING, NOT_STARTED = "not running", "not started yet"
SILENT_AFTER_SECONDS = 10.0
"""Seconds without a heartbeat after which a module counts as silent; modules send one each second, sinks each four."""
GIVEN_UP = "given_up_sinks"
"""Key of the run's value that lists the sinks that the supervisor no longer restarts."""


class ModuleStatus(Struct, frozen=True, kw_only=True):
    """State of one module. `waiting_for` and `ends_when` (what would end the wait) are empty while it works."""

    module: str
    state: str
    waiting_for: str
    ends_when: str
    since_seconds: float
    """Seconds for which the module has been in this state."""
    silent_seconds: float
    """Seconds since the module's last heartbeat."""
    expected: bool = True
    """False if the run does not need the module: only an earlier start of the run had it, or it is a sink that was
    given up."""


class RunStatus(Struct, frozen=True, kw_only=True):
    """Everything that `quartet status` shows except the alarms."""

    name: str
    phase: str
    train_step: int
    policy_version: int
    mean_lag: float | None
    """Mean lag in train steps, over the newest 8 train steps; None before the first train step."""
    success_recent: float | None
    """Success rate of the newest countable training rollouts (100 at most); None before the first rollout."""
    training_rollouts: int
    """Number of training rollouts that ended since the run began; each counts once."""
    trajectories_stored: int
    """Number of trajectories of all kinds stored since the run began: evaluation, demonstrations, retried and late ones
    included."""
    rollouts_per_second: float
    generated_tokens_per_second: float
    prompt_tokens_per_second: float
    rollouts: dict[str, int]
    """Numbers of unfinished rollouts by state, evaluation included."""
    groups: dict[str, int]
    """Numbers of training groups that are neither trained nor dropped yet, by state."""
    modules: list[ModuleStatus]
    stop_reason: str
    quarantined_groups: int = 0
    """Number of groups dropped since the run began because train steps with them failed."""
    quarantined_tasks: dict[str, str] = {}
    """Tasks (`ENV/FAMILY/SEED`) and families (`ENV/FAMILY`) that get no further groups because their environment keeps
    failing, with the last error."""
    policies: list[PolicyStanding] = []
    """Each policy of a run with several policies; empty for a run with one."""
    forked_rollouts: int = 0
    """Number of forked rollouts since the run began, without cancelled ones."""
    training_so_far: dict[str, float] = {}
    """Amount of training so far for each setting that limits it, such as `max_train_steps`; empty until the run is
    requested to stop."""
    progress: RunProgress | None = None
    """Progress of the phase; None if the run is not live, the phase has no known end, or the recipe cannot be read."""

    def absence(self, module: ModuleStatus) -> str:
        """Return why a module is absent and not missed; empty for a module that is present or missed.

        A trainer has ended before an evaluation begins, so its last heartbeat may be recent then.
        """
        if module.state == NOT_STARTED:
            return NOT_STARTED
        is_silent = module.silent_seconds > SILENT_AFTER_SECONDS
        is_trainer = module.module.partition("-")[0] == "trainer"
        if is_silent and not module.expected:
            return "no longer part of the run"
        if is_trainer and self.phase.startswith((EVALUATING, ENDED, FINISHED)):
            return "not needed in this phase"
        return "not needed in this phase" if is_silent and is_trainer and self.phase == STOPPING else ""

    def explained(self) -> "RunStatus":
        """Return the status without waits that are over.

        A module that is absent waits for nothing, and no module waits for a phase that has ended, whatever it reported
        last.
        """
        return structs.replace(self, modules=[self._explained(module) for module in self.modules])

    def _explained(self, module: ModuleStatus) -> ModuleStatus:
        if absence := self.absence(module):
            return structs.replace(module, state=absence, waiting_for="", ends_when="")
        waiting_for, ends_when = wait_now(self.phase, module.waiting_for, module.ends_when)
        return structs.replace(module, waiting_for=waiting_for, ends_when=ends_when)

    def stopped(self) -> "RunStatus":
        """Return the status for a run that is not live: no module runs or waits, whatever it reported last."""
        over = {"state": NOT_RUNNING, "waiting_for": "", "ends_when": ""}
        were = [module for module in self.modules if module.state != NOT_STARTED]
        return structs.replace(self, modules=[structs.replace(module, **over) for module in were], progress=None)

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


class StatusReader:
    """Reader of snapshots of a run. Rates are means over the last `RATE_WINDOW_SECONDS`.

    The recipe gives the progress and the modules that the run needs. Without it there is no progress, and every module
    that ever sent a heartbeat counts as needed, except sinks that were given up.
    """

    def __init__(self, run_dir: Path, ledger: Ledger, recipe: Recipe | None = None) -> None:
        self.run_dir, self.ledger, self.recipe = run_dir, ledger, recipe
        self._training_rollouts = TrainingRollouts(ledger)

    def read(self) -> RunStatus:
        ledger, now = self.ledger, time.time()
        phase, train_step = ledger.value("phase", "not started"), ledger.batches.train_step()
        stop_reason = ledger.stop_reason() or ""
        rates, queue = recent_rates(ledger, RATE_WINDOW_SECONDS), ledger.statistics.queue_sizes()
        status = RunStatus(
            name=self.run_dir.resolve().name,
            phase=phase,
            train_step=train_step,
            policy_version=ledger.policies.latest().version,
            mean_lag=recent_lag(ledger, RECENT_TRAIN_STEPS),
            success_recent=recent_success(ledger, RECENT_ROLLOUTS),
            training_rollouts=self._training_rollouts.count(),
            trajectories_stored=rates.trajectories_stored,
            rollouts_per_second=rates.rollouts_per_second,
            generated_tokens_per_second=rates.response_tokens_per_second,
            prompt_tokens_per_second=rates.prompt_tokens_per_second,
            rollouts=queue.rollouts,
            groups=queue.groups,
            quarantined_groups=ledger.batches.quarantined_groups(),
            quarantined_tasks=dict(ledger.failing_tasks.quarantined()),
            forked_rollouts=ledger.forks.count(),
            modules=self._modules(phase, now),
            policies=standings(ledger) if len(ledger.trained + ledger.frozen) > 1 else [],
            stop_reason=stop_reason,
            training_so_far=training_so_far(ledger) if stop_reason else {},
            progress=run_progress(self.recipe, ledger, phase) if self.recipe else None,
        )
        return status.explained()

    def _modules(self, phase: str, now: float) -> list[ModuleStatus]:
        """Return the modules that ever sent a heartbeat, and those of the recipe that have not started yet.

        While the run starts, a silent module counts as not started: its last heartbeat is of an earlier start.
        """
        given_up, known = self.ledger.value(GIVEN_UP, []), self.recipe.modules if self.recipe else None
        found = {
            row.module: ModuleStatus(
                module=row.module,
                state=row.state,
                waiting_for=row.waiting_for,
                ends_when=row.ends_when,
                since_seconds=now - row.since,
                silent_seconds=max(now - row.beat_at, 0.0),
                expected=row.module not in given_up and (known is None or row.module in known),
            )
            for row in self.ledger.modules.all()
        }
        for module in self._processes():
            former = phase == STARTING and module in found and found[module].silent_seconds > SILENT_AFTER_SECONDS
            if former or module not in found:
                found[module] = _not_started(module)
        return list(found.values())

    def _processes(self) -> list[str]:
        """Return the modules that a run of the recipe starts as processes; none if the recipe is not known."""
        return self.recipe.modules if self.recipe and self.recipe.runtime.kind != "synchronous" else []


def _not_started(module: str) -> ModuleStatus:
    return ModuleStatus(
        module=module, state=NOT_STARTED, waiting_for="", ends_when="", since_seconds=0.0, silent_seconds=0.0
    )
