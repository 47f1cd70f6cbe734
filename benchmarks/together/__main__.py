"""How much faster are two policies trained together than one after the other? A test of AstraFlow's claim.

Two policies press the buttons of the simulated desktop in turn (`benchmarks.desk`), so a rollout is a sample for both.
One after the other, each is trained in a run of its own, in which the other is frozen: with the same data manager, and
batch-synchronously. Services neither join nor leave here, and none is far away.

    python -m benchmarks.together --json
"""

import json
import tempfile
from collections import defaultdict
from pathlib import Path

import click
import psutil

from benchmarks.decoupling import WORKLOADS, rescale
from benchmarks.modes.report import median_ratio
from benchmarks.modes.start import ACTING, make_start
from benchmarks.modes.worlds import pretended
from benchmarks.raw_results import RawResults, require_commit, results_option
from benchmarks.together.run import APART, APART_SYNCHRONOUS, TOGETHER, WAYS, Timed, measure


@click.command()
@click.option("--time-scale", default=0.1, show_default=True, help="Measured seconds per simulated second.")
@click.option("--groups", default=4, show_default=True, help="Groups of 8 in a train step.")
@click.option("--sessions", default=32, show_default=True)
@click.option(
    "--train-steps",
    type=click.IntRange(min=2),
    default=5,
    show_default=True,
    help="Train steps per policy; the first is not timed.",
)
@click.option("--repetitions", default=5, show_default=True)
@click.option(
    "--policies",
    default="runs/benchmarks/long-tailed",
    show_default=True,
    help="Folder of the initial policy, made if missing.",
)
@results_option
@click.option("--json", "as_json", is_flag=True)
def main(
    time_scale: float,
    groups: int,
    sessions: int,
    train_steps: int,
    repetitions: int,
    policies: str,
    results: Path,
    as_json: bool,
) -> None:
    """Compare the ways to train two policies."""
    require_commit(results)
    start = make_start(Path(policies).resolve() / "acting", ACTING)
    raw = RawResults(results / "together.jsonl", Timed)
    raw.begin()
    runs: defaultdict[str, list[Timed]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        world = pretended(start, rescale(WORKLOADS / "desktop.json", time_scale, Path(folder)))
        world["rollout"] |= {"loop": "alternate"}
        for seed in range(1, repetitions + 1):
            ways = [*WAYS, *WAYS][seed % len(WAYS) :][: len(WAYS)]  # the first way changes with the repetition
            for way in ways:
                timed = measure(way, world, groups=groups, sessions=sessions, seed=seed, train_steps=train_steps)
                raw.add({"way": way, "seed": seed}, timed)
                runs[way].append(timed)
                click.echo(f"{way:32} seed {seed}: {timed}", err=True)
    result = {
        "ratio": median_ratio(runs[APART], runs[TOGETHER], "seconds_per_train_step"),
        "ratio_to_synchronous": median_ratio(runs[APART_SYNCHRONOUS], runs[TOGETHER], "seconds_per_train_step"),
        "load_average_1min": round(psutil.getloadavg()[0], 2),
    }
    click.echo(json.dumps(result) if as_json else "\n".join(f"{key:24} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
