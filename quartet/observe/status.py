"""A snapshot of a run for people and scripts: what every module does, what it waits for, and how learning goes."""

import time
from pathlib import Path
from typing import Any

from msgspec import Struct, structs, to_builtins

from quartet.data.ledger import Ledger

RECENT_ROLLOUTS = 100
RECENT_TRAIN_STEPS = 8
RATE_WINDOW_SECONDS = 20.0
NOT_RUNNING = "not running"


class ModuleStatus(Struct, frozen=True, kw_only=True):
    """One module: `waiting_for` and `ends_when` are empty while it works."""

    module: str
    state: str
    waiting_for: str
    ends_when: str
    since_seconds: float
    silent_seconds: float


class RunStatus(Struct, frozen=True, kw_only=True):
    """Everything `quartet status` shows."""

    name: str
    phase: str
    train_step: int
    policy_version: int
    mean_lag: float | None
    """Of the newest 8 train steps."""
    success_recent: float | None
    """Success rate of the latest countable training rollouts (100 at most); None before the first."""
    trajectories_stored: int
    """Since the run began, retried and late ones included."""
    rollouts_per_second: float
    generated_tokens_per_second: float
    prompt_tokens_per_second: float
    rollouts: dict[str, int]
    """Unfinished rollouts by state, evaluation included."""
    groups: dict[str, int]
    """Training groups on their way, by state."""
    modules: list[ModuleStatus]
    stop_reason: str

    def at_rest(self) -> "RunStatus":
        """The same of a run that no process works on: what its modules said last is over."""
        over = {"state": NOT_RUNNING, "waiting_for": "", "ends_when": ""}
        return structs.replace(self, modules=[structs.replace(module, **over) for module in self.modules])

    def to_dict(self) -> dict[str, Any]:
        return to_builtins(self)


class StatusReader:
    """Takes snapshots; rates are over the last `RATE_WINDOW_SECONDS`."""

    def __init__(self, run_dir: Path, ledger: Ledger) -> None:
        self._run_dir, self._ledger = run_dir, ledger

    def read(self) -> RunStatus:
        ledger, now = self._ledger, time.time()
        rates, queue = ledger.rates(RATE_WINDOW_SECONDS), ledger.queue_sizes()
        return RunStatus(
            name=self._run_dir.name,
            phase=ledger.value("phase", "not started"),
            train_step=ledger.train_step(),
            policy_version=ledger.latest_policy().version,
            mean_lag=ledger.recent_lag(RECENT_TRAIN_STEPS),
            success_recent=ledger.recent_success(RECENT_ROLLOUTS),
            trajectories_stored=rates.trajectories_stored,
            rollouts_per_second=rates.rollouts_per_second,
            generated_tokens_per_second=rates.response_tokens_per_second,
            prompt_tokens_per_second=rates.prompt_tokens_per_second,
            rollouts=queue.rollouts,
            groups=queue.groups,
            modules=[
                ModuleStatus(
                    module=row.module,
                    state=row.state,
                    waiting_for=row.waiting_for,
                    ends_when=row.ends_when,
                    since_seconds=now - row.since,
                    silent_seconds=now - row.beat_at,
                )
                for row in ledger.modules()
            ],
            stop_reason=ledger.stop_reason() or "",
        )
