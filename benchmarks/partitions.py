"""Does a run on several machines keep its promises if the network between them fails?

    python -m benchmarks.partitions --cuts 100 --json

Five nodes (network namespaces that the benchmark makes) are connected by packets that this process forwards, so it can
cut, delay and lose them; no packet leaves the machine. The head runs supervisor, data manager, trainer, engine, worker
and environment host; the database has a node of its own; one more worker, engine and environment host join from theirs,
with wall clocks ten minutes early or late. Each node is cut off in turn for longer than a lease and comes back, every
fourth time on links with 300 ms latency and 2 % loss; once the database is away for longer than any module waits. The
run is then ended and audited (`quartet.report.audit`). The command exits with 1 if a promise was broken, or if the
status did not show a cut. It needs root and PostgreSQL.
"""

import json
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click

from benchmarks.bandit import make_bandit_policy
from benchmarks.cuts.campaign import NODES, Cuts
from benchmarks.cuts.node_run import NodeRun
from benchmarks.cuts.recipe import cut_recipe
from benchmarks.lost_generation import lost_generation
from benchmarks.network.hub import Hub
from benchmarks.network.node import Node
from benchmarks.postgresql_server import network_server
from quartet.ledger import Ledger
from quartet.report.audit import audit

PROMISES = ("lost", "trained_twice", "over_lag")


@click.command()
@click.option("--cuts", default=100, show_default=True, help="Number of cuts.")
@click.option("--outage/--no-outage", default=True, show_default=True, help="Also a cut that no module waits out.")
@click.option("--seed", default=0, show_default=True, help="Seed of the order, the durations and the lost packets.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the run in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def main(cuts: int, outage: bool, seed: int, keep: Path | None, as_json: bool) -> None:
    """Cut off the nodes of a run."""
    with tempfile.TemporaryDirectory() as folder:
        place = keep or Path(folder)
        result = measure(make_bandit_policy(place / "policy"), place / "partitions", cuts, outage=outage, seed=seed)
    for key, value in result.items():
        click.echo(f"{key:24} {value}")
    if as_json:
        click.echo(json.dumps(result))
    if result["findings"] or result["unexplained"]:
        raise SystemExit(1)


def measure(policy: Path, folder: Path, cuts: int, *, outage: bool = False, seed: int = 0) -> dict[str, Any]:
    """Return the result of one run with this many cuts."""
    begun = time.monotonic()
    with ExitStack() as stack:
        nodes = {name: Node(name, number) for number, name in enumerate(NODES, start=1)}
        for node in nodes.values():
            stack.callback(node.close)
        url, own_url = network_server(nodes["database"].prefix, nodes["database"].address)
        hub = stack.enter_context(Hub(list(nodes.values()), seed))
        run = stack.enter_context(NodeRun(folder, cut_recipe(policy, url), nodes, own_url))
        campaign = Cuts(run, hub, seed)
        campaign.begin()
        campaign.many(cuts)
        if outage:
            campaign.outage()
        run.finish()
    report = audit(folder / "run")
    with closing(Ledger.view(folder / "run")) as ledger:
        generation = lost_generation(ledger)
    return {
        "cuts": len(campaign.done),
        "cuts_by_node": dict(Counter(campaign.done)),
        "packets_lost": hub.lost,
        "trained": report.trained,
        "train_steps": report.train_steps,
        **{name: getattr(report, name) for name in PROMISES},
        "replay_identical": report.replay_identical,
        "generation_seconds_lost": round(generation.waited, 3),
        "answer_seconds_lost": round(generation.answered, 3),
        "findings": [finding.what for finding in report.findings],
        "unexplained": campaign.unexplained,
        "seconds": round(time.monotonic() - begun),
    }


if __name__ == "__main__":
    main()
