"""Page "Now": the current activity or wait of each of the four modules, refreshed every two seconds."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quartet.manager.stop import resume_command
from quartet.registry import build
from quartet.report.alarms import read_alarms
from quartet.report.overview import read_overview
from quartet.report.recent import recent_verdicts
from quartet.report.status import SILENT_AFTER_SECONDS, ModuleStatus, RunStatus
from quartet.web.render import render
from quartet.web.viewed_run import ViewedRun, viewed_run

PARTS = {"manager": "data", "worker": "rollout", "engine": "rollout", "env": "env", "trainer": "train"}
"""Kind of process -> part of the picture that shows it; the kind of `engine-2` is `engine`."""
RECENT_EVENTS, RECENT_GROUPS = 12, 200


def routes() -> list[Route]:
    return [Route("/runs/{run}/now", show_now, name="now")]


def show_now(request: Request) -> Response:
    run = viewed_run(request)
    status, running = run.status(), run.running
    return render(
        request, "now.html", run=run, page="now", status=status, running=running, **_picture(run, status, running)
    )


def _picture(run: ViewedRun, status: RunStatus, running: bool) -> dict[str, Any]:
    recipe, now = run.recipe, time.time()
    return {
        "now": now,
        "resume_command": resume_command(str(run.run_dir), status.stop_reason, status.training_so_far),
        "processes": _by_part(status.modules),
        "health": {one.module: _health(one, status, running) for one in status.modules},
        "alarms": read_alarms(run.run_dir, run.ledger, recipe, status) if running else [],
        "overview": read_overview(run.ledger),
        "verdicts": recent_verdicts(run.ledger, RECENT_GROUPS),
        "events": run.ledger.events(RECENT_EVENTS),
        "sessions": recipe.sessions,
        "groups_per_batch": recipe.train.groups_per_batch,
        "max_groups_ahead": build(recipe.straggler, recipe).groups_ahead(recipe.max_groups_ahead),
        "groups_ahead": sum(status.groups.values()),
    }


def _health(process: ModuleStatus, status: RunStatus, running: bool) -> str:
    """Return the status mark of a process: `good` (working), `wait` (waiting), `bad` (needed, but without heartbeat) or
    `off`."""
    if not running or status.absence(process):
        return "off"
    if process.silent_seconds > SILENT_AFTER_SECONDS:
        return "bad"
    return "wait" if process.waiting_for else "good"


def _by_part(modules: list[ModuleStatus]) -> dict[str, list[ModuleStatus]]:
    """Return the processes of each part of the picture. Other kinds of processes, such as sinks, go to `data`."""
    parts: dict[str, list[ModuleStatus]] = {part: [] for part in PARTS.values()}
    for module in modules:
        parts[PARTS.get(module.module.partition("-")[0], "data")].append(module)
    return parts
