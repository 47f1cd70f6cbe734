"""Which throughput would the real data manager reach on devices that are not here?

A simulator in virtual time runs the real ledger and the real data manager. Engines, environments and trainer are
distributions: cost models from the data sheets of GPUs, and latencies from papers. Parts, chosen with `--parts`:

* `dart`, `rollart`: the ratios that two systems published, from their published settings (`benchmarks/published/`),
  with the sensitivity to each setting that is assumed;
* `astraflow`: two policies trained together, against one after the other, on services that join and leave;
* `april`: recycled long responses, against batch-synchronous training;
* `redundancy`: gain and price of RollArt's extra rollouts where environments are slow or hang;
* `affinity`: routing by hardware affinity;
* `large`: 1,000 engines and 10,000 environments;
* `ticks`: wall time of a data manager's tick against the size of the cluster.
"""

import json
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from benchmarks.published import april, astraflow, dart, large, redundancy, rollart
from benchmarks.published.base import compare

SIZES = ((10, 100), (100, 1000), (1000, 10_000))
PARTS = "dart,rollart,astraflow,april,redundancy,affinity,large"


@click.command()
@click.option("--parts", default=PARTS, show_default=True)
@click.option("--train-steps", default=8, show_default=True, help="Measured train steps of a published system.")
@click.option("--warm-steps", default=2, show_default=True)
@click.option("--large-steps", default=2, show_default=True, help="Measured train steps of the large cluster.")
@click.option("--folder", type=click.Path(path_type=Path), help="Folder of the ledgers, for instance in memory.")
@click.option("--json", "as_json", is_flag=True)
def main(parts: str, train_steps: int, warm_steps: int, large_steps: int, folder: Path | None, as_json: bool) -> None:
    """Simulate clusters."""
    length, result = (warm_steps, train_steps), dict[str, Any]()

    def say(line: str) -> None:
        click.echo(line, err=as_json)

    wanted = parts.split(",")
    if "dart" in wanted:
        found = compare(dart.Assumed(), dart.ratios, dart.VARIED, length, say)
        result["dart"] = found | {"calibrated": asdict(dart.calibrated(dart.Assumed(), length))}
    if "rollart" in wanted:
        result["rollart"] = compare(rollart.Assumed(), rollart.ratios, rollart.VARIED, length, say)
    if "astraflow" in wanted:
        result["astraflow"] = compare(astraflow.Assumed(), astraflow.ratios, astraflow.VARIED, length, say)
    if "april" in wanted:
        result["april"] = compare(april.Assumed(), april.ratios, april.VARIED, length, say)
    if "redundancy" in wanted:
        result["redundancy"] = redundancy.measure(redundancy.Assumed(), length)
    if "affinity" in wanted:
        result["affinity"] = rollart.affinity(rollart.Assumed(), length)
    if "large" in wanted:
        found = large.measure(1000, 10_000, large_steps, folder)
        result |= {"engine_utilisation_1000_engines": round(found["engine_utilisation"], 3), "large": found}
    if "ticks" in wanted:
        result["ticks"] = [large.measure(engines, sessions, 1, folder) for engines, sessions in SIZES]
    click.echo(json.dumps(result) if as_json else "\n".join(f"{key}: {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
