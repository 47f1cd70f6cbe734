"""What do the ledger's own calls cost, and does the cost grow with the run?

Every size is reached by bulk load; then 20,000 appends, 500 claims and 200 status snapshots are measured through the
public API. An append is one transaction: lease check, rollout transition, trajectory row, event, and a blob of 4 kB. A
claim is the transaction that leases a batch of 64 groups of 8; reading the 512 trajectories is timed separately. The
appends are repeated by concurrent worker processes, each of which leases its rollouts itself, one at a time. A cycle is
the work of a worker and of the data manager for one group (`ledger_cycle.py`), beside an evaluation of `--live`
unfinished rollouts.

    python -m benchmarks.ledger --databases postgresql --workers 64 --json
    python -m benchmarks.ledger --sizes 10240 --live 10000,1000000 --appends 0 --claims 0
"""

import itertools
import json
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.bulk_load import BATCH, GROUP, load, queue_evaluation
from benchmarks.ledger_cycle import LEASE_SECONDS, append, managed
from benchmarks.postgresql_server import server_url
from quartet.ledger import Ledger
from quartet.ledger.database import drop_database
from quartet.report.status import StatusReader
from quartet.types import (
    Call,
    FinishReason,
    Observation,
    RolloutLease,
    RolloutPlan,
    Sampling,
    Status,
    Task,
    TokenColumns,
    Trajectory,
    Turn,
)


@click.command()
@click.option("--sizes", default="10000,100000,1000000", show_default=True)
@click.option("--databases", default="sqlite,postgresql", show_default=True)
@click.option("--appends", default=20_000, show_default=True)
@click.option("--claims", default=500, show_default=True)
@click.option("--workers", default=4, show_default=True, help="Number of concurrent worker processes.")
@click.option("--cycles", default=50, show_default=True, help="Number of cycles of a worker and the data manager.")
@click.option("--live", default="0", show_default=True, help="Numbers of unfinished rollouts, each measured.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the runs; default: a temporary folder.")
@click.option("--json", "as_json", is_flag=True)
def main(
    sizes: str,
    databases: str,
    appends: int,
    claims: int,
    workers: int,
    cycles: int,
    live: str,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Measure the ledger."""
    if live != "0" and (appends or claims):
        raise click.UsageError("unfinished rollouts would be claimed too: give --live with --appends 0 --claims 0")
    result: dict[str, dict[str, dict[str, float]]] = {}
    for database in databases.split(","):
        url = server_url(fsync=True) if database == "postgresql" else ""
        figures = result.setdefault(database, {})
        for size, unfinished in itertools.product(sizes.split(","), live.split(",")):
            what = size if unfinished == "0" else f"{size}+{unfinished}"
            with tempfile.TemporaryDirectory(dir=folder) as run_dir:
                ledger = Ledger.create(Path(run_dir) / "run", url=url)
                measured = filled(ledger, int(size), int(unfinished)) | cycle_times(ledger, cycles)
                if appends:
                    measured |= measure_workers(ledger, appends, workers)
                if claims:
                    measured |= measure_claims(ledger, claims)
                ledger.close()
                drop_database(Path(run_dir) / "run")
            for name, value in measured.items():
                figures.setdefault(name, {})[what] = round(value, 3)
            click.echo(f"{database:12} {what:>17} " + "  ".join(f"{k} {v:,.2f}" for k, v in measured.items()))
    if as_json:
        click.echo(json.dumps(result))


def filled(ledger: Ledger, size: int, unfinished: int) -> dict[str, float]:
    """Fill a new ledger, and return the time that it took."""
    ledger.policies.register_initial("policies/v000000")
    seconds = timed(lambda: load(ledger, size))
    if unfinished:
        seconds += timed(lambda: queue_evaluation(ledger, unfinished))
    return {"load_seconds": seconds}


def cycle_times(ledger: Ledger, cycles: int) -> dict[str, float]:
    """Return the times of the claim of a worker, of an append and of a tick of the data manager."""
    times: dict[str, list[float]] = {"worker_claim": [], "append": [], "tick": []}
    with managed(ledger) as manager:
        for _ in range(3):  # the first ticks admit groups
            manager.tick()
        for _ in range(cycles):
            began = time.perf_counter()
            leases = ledger.rollouts.claim("worker", GROUP, LEASE_SECONDS)
            times["worker_claim"].append(1e3 * (time.perf_counter() - began))
            times["append"] += [1e3 * timed(partial(append, ledger, lease)) for lease in leases]
            times["tick"].append(1e3 * timed(manager.tick))
    return {f"{name}_ms_p50": statistics.median(values) for name, values in times.items()}


def measure_workers(ledger: Ledger, appends: int, workers: int) -> dict[str, float]:
    """Return the throughput of appends by one process, and of claims and appends by concurrent processes."""
    leases = leased(ledger, appends)
    alone = appends / timed(lambda: append_all(ledger, leases))
    queue(ledger, appends)
    seconds, connections = work_by_processes(ledger, workers)
    figures = {"appends_per_second": alone, f"appends_per_second_{workers}_workers": appends / seconds}
    return figures if connections is None else figures | {f"connections_{workers}_workers": connections}


def measure_claims(ledger: Ledger, claims: int) -> dict[str, float]:
    """Return the times of a trainer's claims, and of a status snapshot."""
    leases = leased(ledger, 2 * BATCH * GROUP)
    append_all(ledger, leases)
    wait_for_trainer(ledger, 2 * BATCH)
    claimed, loaded = claim_times(ledger, claims)
    figures = {"claim_ms_p50": statistics.median(claimed), "claim_ms_p99": percentile(claimed, 99)}
    figures["claim_read_ms_p50"] = statistics.median(loaded)
    status = StatusReader(ledger.run_dir, ledger)
    figures["status_ms_p50"] = statistics.median(1e3 * timed(status.read) for _ in range(200))
    return figures


def append_all(ledger: Ledger, leases: list[RolloutLease]) -> None:
    """Append a record to each lease, by the public call, one transaction each. The records are variants of sixteen
    trajectories."""
    records = [record(leases[0].task, random.Random(number)) for number in range(16)]
    for number, lease in enumerate(leases):
        records[number % 16].calls[0].prompt_ids[0] = lease.rollout_id  # so that no two blobs are equal
        ledger.trajectories.append(lease, records[number % 16], max_attempts=3)


def work_by_processes(ledger: Ledger, workers: int) -> tuple[float, int | None]:
    """Let processes claim and append all queued rollouts. Return the seconds from their common start to the end of the
    last one, and on PostgreSQL the largest number of connections."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(workers + 1)
    processes = [context.Process(target=work_in_process, args=(ledger.run_dir, ready)) for _ in range(workers)]
    for process in processes:
        process.start()
    ready.wait()
    began, most = time.perf_counter(), 0
    while any(process.is_alive() for process in processes):
        most = max(most, connections(ledger) or 0)
        time.sleep(0.1)
    return time.perf_counter() - began, most or None


def work_in_process(run_dir: Path, ready: Any) -> None:
    """Claim and append rollouts one at a time, like a worker's sessions, until none is queued."""
    ledger = Ledger.open(run_dir)
    records = [record(Task(env="e", family="family-0", seed=0), random.Random(number)) for number in range(16)]
    ready.wait()
    while leases := ledger.rollouts.claim(f"worker-{os.getpid()}", 1, LEASE_SECONDS):
        (lease,) = leases
        records[lease.rollout_id % 16].calls[0].prompt_ids[0] = lease.rollout_id
        ledger.trajectories.append(lease, records[lease.rollout_id % 16], max_attempts=3)
    ledger.close()


def connections(ledger: Ledger) -> int | None:
    """Return the number of Quartet's connections to a PostgreSQL server; None for SQLite."""
    with ledger.read() as connection:
        if connection.dialect.name == "sqlite":
            return None
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'quartet-%%'"
        return connection.exec_driver_sql(query).scalar_one()


def claim_times(ledger: Ledger, claims: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of every claim's transaction, and of reading its trajectories.

    Batches are released between two claims, which is not timed.
    """
    claimed, loaded = [], []
    for _ in range(claims):
        began = time.perf_counter()
        claim = ledger.batches.lease("trainer", BATCH, 10**9, "mask", LEASE_SECONDS)
        leased_at = time.perf_counter()
        assert claim is not None
        batch = ledger.batches.load(claim)
        loaded.append(1e3 * (time.perf_counter() - leased_at))
        claimed.append(1e3 * (leased_at - began))
        assert batch is not None
        ledger.batches.release(batch)
    return claimed, loaded


def queue(ledger: Ledger, rollouts: int) -> None:
    """Admit groups with this many rollouts together."""
    for number in range(rollouts // GROUP):
        task = Task(env="e", family=f"family-{number % 24}", seed=number)
        ledger.groups.admit(RolloutPlan(task=task, num_rollouts=GROUP, max_turns=16))


def leased(ledger: Ledger, rollouts: int) -> list[RolloutLease]:
    """Admit rollouts and return their leases."""
    queue(ledger, rollouts)
    leases: list[RolloutLease] = []
    while more := ledger.rollouts.claim("w", 500, LEASE_SECONDS):
        leases += more
    return leases


def wait_for_trainer(ledger: Ledger, groups: int) -> None:
    """Make this many groups trainable; the others stay open."""
    for group_id in ledger.groups.closable(1e12)[:groups]:
        ledger.groups.close(group_id)
        members = [member.rollout_id for member in ledger.groups.load(group_id).members]
        ledger.groups.make_trainable(group_id, members, 2)


def record(task: Task, random: random.Random) -> Trajectory:
    """Return a trajectory of three turns, about 4 kB compressed, with an error, so that its append writes an event."""
    seen = Turn(observation=Observation(goal="", text=""), call_index=0, response="")
    return Trajectory(
        task=task,
        status=Status.COMPLETED,
        calls=[call(random) for _ in range(3)],
        turns=[seen] * 3,
        rewards={"task": 1.0},
        success=True,
        error="none",
    )


def call(random: random.Random) -> Call:
    return Call(
        prompt_ids=[random.randrange(60_000) for _ in range(400)],
        response=TokenColumns(
            token_ids=[random.randrange(60_000) for _ in range(30)],
            logprobs=[-random.random() for _ in range(30)],
            versions=[0] * 30,
        ),
        sampling=Sampling(),
        finish_reason=FinishReason.STOP,
    )


def timed(action: Callable[[], Any]) -> float:
    """Return the duration of a call in seconds."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def percentile(values: list[float], share: int) -> float:
    return statistics.quantiles(values, n=100)[share - 1]


if __name__ == "__main__":
    main()
