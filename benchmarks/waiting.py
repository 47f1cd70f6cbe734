"""What does waiting cost? Processor time of all modules of a run that has nothing to do, in shares of one core.

    python -m benchmarks.waiting --json

The run is a bandit run that is in no phase: the data manager admits nothing, so the worker waits for rollouts, the
engine for requests, the environment host for clients, and the trainer for groups. The operating system measures the
processor time.
"""

import json
import tempfile
import time
from pathlib import Path

import click
import psutil

from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.policy.make import make_policy
from quartet.recipe.file import parse_recipe
from quartet.run.run_dir import prepare
from quartet.runtime.session import open_or_create
from quartet.runtime.supervisor import Supervisor

MODULES = ("env", "engine", "worker", "manager", "trainer")
NO_PHASE = "waiting"
SETTLE_SECONDS = 5.0
"""Time between the last module's report and the measurement, so that imports and first polls are over."""


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--postgresql", is_flag=True, help="Use a PostgreSQL server, whose own time is not counted.")
@click.option("--json", "as_json", is_flag=True)
def main(seconds: float, postgresql: bool, as_json: bool) -> None:
    """Measure a run that waits."""
    url = ""
    if postgresql:
        from benchmarks.postgresql_server import server_url

        url = server_url(fsync=True)
    with tempfile.TemporaryDirectory() as folder:
        shares = measure(Path(folder), seconds, url)
    for module, share in shares.items():
        click.echo(f"{module:12} {100 * share:6.2f} % of a core")
    if as_json:
        click.echo(json.dumps({"core_shares": shares, "seconds": seconds}))


def measure(folder: Path, seconds: float, url: str) -> dict[str, float]:
    """Return processor seconds per second of each module, of the supervisor (this process), and of all modules."""
    recipe = _recipe(folder, url)
    prepare(recipe, folder / "run", resume=False, fresh=False)
    ledger = open_or_create(recipe, folder / "run")
    ledger.enter_phase(NO_PHASE)
    with Supervisor(recipe, folder / "run", ledger) as supervisor:
        supervisor.start(*MODULES)
        supervisor.run_until(lambda: "all wait" if _all_wait(ledger) else None)
        _run_for(supervisor, SETTLE_SECONDS)
        processes = {row.module: psutil.Process(row.pid) for row in ledger.modules.all()} | {
            "supervisor": psutil.Process()
        }
        before, began = {name: _used(process) for name, process in processes.items()}, time.monotonic()
        _run_for(supervisor, seconds)
        elapsed = time.monotonic() - began
        shares = {name: (_used(process) - before[name]) / elapsed for name, process in processes.items()}
    ledger.close()
    shares["all_modules"] = sum(shares[module] for module in MODULES)
    return {name: round(share, 5) for name, share in shares.items()}


def _recipe(folder: Path, url: str) -> Recipe:
    make_policy(["click left [1]"], folder / "policy", vocab_size=600, hidden_size=32, num_layers=2, num_heads=2)
    data = {
        "name": "waiting",
        "model": {"path": str(folder / "policy")},
        "env": {"name": "bandit", "families": ["fixed"], "sessions": 8, "screenshots": False},
        "rollout": {"max_turns": 2, "max_tokens": 8},
        "evaluation": {"before_and_after": False, "supervised_control": False},
        "ledger": {"url": url},
    }
    return parse_recipe(data, "the benchmark")


def _all_wait(ledger: Ledger) -> bool:
    waiting = {row.module for row in ledger.modules.all() if row.waiting_for}
    return waiting.issuperset(MODULES)


def _run_for(supervisor: Supervisor, seconds: float) -> None:
    until = time.monotonic() + seconds
    supervisor.run_until(lambda: "measured" if time.monotonic() >= until else None)


def _used(process: psutil.Process) -> float:
    """Return the user and system seconds of a process."""
    return sum(process.cpu_times()[:2])


if __name__ == "__main__":
    main()
