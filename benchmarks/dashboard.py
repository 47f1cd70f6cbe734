"""How long does each page of the dashboard take for a large run? Processor time of the server, per page.

    python -m benchmarks.dashboard --rollouts 1000000 --json

The run is made by `benchmarks.bulk_load`, with the metrics that this many rollouts record at 15 per second. Each page
is requested once, which reads its template, and then five times; the median of the five counts. A page must take less
than 300 ms.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import click
import httpx

from benchmarks.bandit import bandit_recipe
from benchmarks.bulk_load import load
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.telemetry.record import Recorder
from quartet.web.app import build_app
from quartet.web.pages import NAVIGATION

ROLLOUTS_PER_SECOND, ROLLOUTS_PER_TRAIN_STEP, ROLLOUTS_PER_REPORT = 15, 512, 75
REPETITIONS = 5
MOST_MILLISECONDS = 300.0
ROLLOUTS = ("family=family-3", "family=family-3&success=false&min_turns=9", "status=error_env", "train_step=3")
"""Filters of the list: one that an index supports, one that no index supports, one without matches, and the rollouts of
one batch."""
QUESTIONS = (
    *NAVIGATION,
    *("curves.json", "curves.json?axis=time", "family?name=family-3", "rollouts?older_than=500", "rollouts/500"),
    *(f"rollouts?{query}" for query in ROLLOUTS),
)


@click.command()
@click.option("--rollouts", default=1_000_000, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Folder of the run; an existing run is used again.")
@click.option("--json", "as_json", is_flag=True)
def main(rollouts: int, keep: Path | None, as_json: bool) -> None:
    """Measure every page."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = keep or Path(folder) / "run"
        if not (run_dir / "config.toml").exists():
            make_run(run_dir, rollouts)
        milliseconds = asyncio.run(measure(run_dir))
    for question, spent in milliseconds.items():
        click.echo(f"{question:56} {spent:8.1f} ms{'   too slow' if spent > MOST_MILLISECONDS else ''}")
    if as_json:
        click.echo(json.dumps({"rollouts": rollouts, "cpu_milliseconds": milliseconds}))


async def measure(run_dir: Path) -> dict[str, float]:
    """Return the processor time of each request in milliseconds, median of five."""
    transport = httpx.ASGITransport(app=build_app([run_dir]))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return {question: await _median(client, f"/runs/{run_dir.name}/{question}") for question in QUESTIONS}


async def _median(client: httpx.AsyncClient, address: str) -> float:
    spent = []
    for _ in range(1 + REPETITIONS):
        start = time.process_time()
        (await client.get(address)).raise_for_status()
        spent.append(1000 * (time.process_time() - start))
    return median(spent[1:])


def make_run(run_dir: Path, rollouts: int) -> None:
    """Make a finished run of this many rollouts, about 5 kB each."""
    run_dir.mkdir(parents=True)
    ledger = Ledger.create(run_dir)
    ledger.policies.register_initial("policy")
    load(ledger, rollouts)
    ledger.close()
    _record(run_dir, rollouts)
    (run_dir / "config.toml").write_text(to_toml(bandit_recipe(Path("policy"))))


def _record(run_dir: Path, rollouts: int) -> None:
    """Write the metrics that worker, trainer and engine would have recorded, up to now."""
    now = time.time() - rollouts / ROLLOUTS_PER_SECOND
    worker, trainer, engine = (Recorder(run_dir, role, clock=lambda: now) for role in ("worker", "trainer", "engine"))
    for index in range(rollouts):
        now += 1 / ROLLOUTS_PER_SECOND
        success = float(index % 2)
        worker.metric("rollout", rollout_id=index, purpose="train", reward=success, success=success, turns=3)
        if index % ROLLOUTS_PER_TRAIN_STEP == 0:
            step = index // ROLLOUTS_PER_TRAIN_STEP + 1
            trainer.metric("train", step=step, version=step, entropy_nats=0.3, gradient_norm=1.0, gap_k1_nats=0.001)
        if index % ROLLOUTS_PER_REPORT == 0:
            engine.metric("engine", generated_tokens_per_second=400.0, prompt_tokens_per_second=5000.0)
            for recorder in (worker, trainer, engine):
                recorder.metric("module", waiting_fraction=0.2)
    for recorder in (worker, trainer, engine):
        recorder.close()


if __name__ == "__main__":
    main()
