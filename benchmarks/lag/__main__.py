"""Does learning suffer from old trajectories? Every objective and lag bound against learning without lag.

The text environment is `locks`, without latencies. Before each train step all that admission allows is rolled out, so
trained trajectories are as old as the bound allows, and the result does not depend on the speed of the machine.

    python -m benchmarks.lag --lags 8,4 --json
"""

import json
from pathlib import Path

import click

from benchmarks.lag.compare import compare_learning
from benchmarks.learning_experiments.runner import seed_range
from benchmarks.raw_results import results_option


@click.command()
@click.option("--lags", default="4,2,1", show_default=True, help="Lag bounds, in train steps.")
@click.option("--seeds", default="40-51", show_default=True, help="First and last seed.")
@click.option(
    "--set", "options", multiple=True, metavar="SETTING=VALUE", help="Override a setting of all arms; may be repeated."
)
@results_option
@click.option("--json", "as_json", is_flag=True)
def main(lags: str, seeds: str, options: tuple[str, ...], results: Path, as_json: bool) -> None:
    """Compare learning under lag."""
    result = compare_learning(
        list(map(int, lags.split(","))),
        seed_range(seeds, results),
        options,
        results / "lag.jsonl",
        lambda line: click.echo(line, err=as_json),
    )
    if as_json:
        click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
