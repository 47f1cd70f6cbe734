"""Which throughput would the real data manager reach on devices that are not here?

    python -m benchmarks.scale --json                         # all parts
    python -m benchmarks.scale --parts dart,rollart --json    # some of them

A simulator in virtual time runs the real ledger and the real data manager. Engines, environments and trainer are
distributions: cost models from the data sheets of GPUs, and latencies from papers. Every part is one file in
`benchmarks/published/`: published settings, assumptions, and outcomes beside the published ones.

Each simulated system is added to `benchmarks/results/scale_PART.jsonl` as soon as it is finished, and is taken from
there if it is asked for again. So a command that was stopped continues, and `--anew` begins anew. Results do not depend
on the machine's speed, except for the processor time of ticks.
"""

import json
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from benchmarks.published import NAMES, find
from benchmarks.published.base import A, Length, Part, Simulate
from benchmarks.published.rows import described, report, rows
from benchmarks.published.simulated import Simulator
from benchmarks.published.views import PREFIX
from benchmarks.raw_results import RawResults, results_option
from benchmarks.virtual.figures import Figures


@click.command()
@click.option("--parts", default=",".join(NAMES), show_default=True)
@click.option("--warm-steps", type=int, help="Train steps that are not measured; default: the part's.")
@click.option("--train-steps", type=int, help="Measured train steps; default: the part's.")
@click.option("--variations/--no-variations", default=True, help="Also simulate the variations of assumptions.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the ledgers, for instance in memory.")
@click.option("--anew", is_flag=True, help="Delete the earlier raw results of these parts first.")
@results_option
@click.option("--json", "as_json", is_flag=True, help="End with one JSON line.")
def main(
    parts: str,
    warm_steps: int | None,
    train_steps: int | None,
    variations: bool,
    folder: Path | None,
    anew: bool,
    results: Path,
    as_json: bool,
) -> None:
    """Simulate clusters."""
    names = parts.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        raise click.UsageError(f"no part is called {unknown[0]!r}: {', '.join(NAMES)}")
    given = {"warm_steps": warm_steps, "train_steps": train_steps}
    changed = {name: value for name, value in given.items() if value is not None}
    result = dict[str, Any]()
    for name in names:
        file, part = results / f"{PREFIX}{name}.jsonl", find(name)
        if anew:
            RawResults(file, Figures).begin()
        length = Length(**(asdict(part.length) | changed))
        simulator = Simulator(part, file, length, folder, lambda line: click.echo(line, err=True))
        reported = measure(name, part, simulator, varied=variations) | asdict(length)
        result |= {headline: reported[headline]["simulated"] for headline in part.headlines} | {name: reported}
    if as_json:
        click.echo(json.dumps(result))


def measure(name: str, part: Part[A], simulate: Simulate[A], *, varied: bool) -> dict[str, Any]:
    """Print and return the results of a part."""
    found = []
    for row in rows(part, simulate, varied=varied):
        outcomes = ", ".join(f"{outcome} {one.simulated:.3g}" for outcome, one in row.outcomes.items())
        click.echo(f"{name}, {described(row.changes) or 'as assumed'}: {outcomes}", err=True)
        found.append(row)
    return report(found)


if __name__ == "__main__":
    main()
