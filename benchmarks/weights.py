"""How small is a delta of real weights, is it exact, and how long does an engine pause for new weights?

    python -m benchmarks.weights --json

A run of separate processes trains the shipped policy `miniwob-start` (1.1 M parameters) on the two-armed bandit, with
float32 weights in the trainer, and publishes each version in bfloat16 with a delta. The engine reads the deltas while
it serves the rollouts. Then this process follows all versions by their deltas alone, and compares each with its whole
file, bit for bit. Further learning rates show when deltas stop being small. The last version is also sent from memory
(`publisher = "broadcast"`) and compared with its file.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import torch

from benchmarks.bandit import bandit_recipe
from benchmarks.watched_run import train
from quartet.config import Publisher
from quartet.ledger import Ledger
from quartet.policy.delta_file import DELTA_FILE
from quartet.policy.transfer import Sender, receive
from quartet.policy.weights import read_weights, weights_bytes
from quartet.recipe.file import to_toml
from quartet.registry import build
from quartet.shipped import shipped_policies
from quartet.telemetry.records import read_records

OTHER_STEPS = 10
"""Train steps with each further learning rate."""
TRANSFERS = 5


@click.command()
@click.option("--deltas", default=100, show_default=True, help="Length of the chain of deltas.")
@click.option("--learning-rate", default=1e-6, show_default=True, help="A usual rate for language models.")
@click.option("--others", default="1e-5,1e-4", show_default=True, help="Further learning rates, or empty.")
@click.option("--json", "as_json", is_flag=True)
def main(deltas: int, learning_rate: float, others: str, as_json: bool) -> None:
    """Train, and measure the published versions."""
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder) / "run", learning_rate, deltas)
        ratios = {f"{learning_rate:.0e}": result["delta_bytes_ratio"]}
        for rate in map(float, filter(None, others.split(","))):
            ratios[f"{rate:.0e}"] = measure(Path(folder) / f"{rate:.0e}", rate, OTHER_STEPS)["delta_bytes_ratio"]
        result["ratio_by_learning_rate"] = ratios
    for key, value in result.items():
        click.echo(f"{key:28} {value}")
    if as_json:
        click.echo(json.dumps(result))


def measure(run_dir: Path, learning_rate: float, deltas: int) -> dict[str, Any]:
    """Train until there are so many deltas; return the figures of the run and of its versions."""
    run_dir.parent.mkdir(exist_ok=True)
    recipe_file = run_dir.parent / f"{run_dir.name}.toml"
    recipe = bandit_recipe(
        shipped_policies()["miniwob-start"],
        train={
            "max_train_steps": deltas + 1,
            "learning_rate": learning_rate,
            "publish_dtype": "bfloat16",
            "max_seconds": 3600.0,
        },
        publisher={"name": "delta"},
        disk={"keep_policies": deltas + 2},
        evaluation={"before_and_after": False, "supervised_control": False},
    )
    recipe_file.write_text(to_toml(recipe))
    summary = train(recipe_file, run_dir, look=lambda _: None, poll_seconds=1.0)
    with closing(Ledger.open(run_dir)) as ledger:
        folders = [Path(policy.path) for policy in ledger.policies.live() if policy.version]
    loads = [record for record in read_records(run_dir, "engine") if "loaded_version" in record]
    whole = weights_bytes(folders[0])
    return {
        **broadcast(folders[-1], run_dir.parent / f"{run_dir.name}.offer"),
        "delta_bytes_ratio": round(statistics.median((f / DELTA_FILE).stat().st_size for f in folders[1:]) / whole, 4),
        f"bit_equal_after_{deltas}": follows(folders),
        "pause_ms": round(statistics.median(load["swap_ms"] for load in loads), 2),
        "pause_ms_max": round(max(load["swap_ms"] for load in loads), 2),
        "whole_megabytes": round(whole / 1e6, 3),
        "engine_loads": len(loads),
        "engine_read_share": round(sum(load["read_megabytes"] for load in loads) / (len(loads) * whole / 1e6), 4),
        "lost": summary["lost"],
    }


def broadcast(folder: Path, offered: Path) -> dict[str, Any]:
    """Send the weights of `folder` from memory, as the publisher `broadcast` does, and read them from the file; return
    the median times of an engine, and whether both are equal bit for bit."""
    weights, sender = read_weights(folder), Sender("127.0.0.1", "gloo", 60.0)
    offered.mkdir()
    sender.offer(offered, "offered", weights)
    receive_ms, read_ms, equal = [], [], True
    for _ in range(TRANSFERS):
        started = time.perf_counter()
        received = receive(offered, 60.0) or {}
        received_at = time.perf_counter()
        read = read_weights(folder)
        receive_ms.append(1e3 * (received_at - started))
        read_ms.append(1e3 * (time.perf_counter() - received_at))
        equal &= received.keys() == read.keys() and all(torch.equal(received[name], read[name]) for name in read)
    return {
        "broadcast_bit_equal": equal,
        "broadcast_receive_ms": round(statistics.median(receive_ms), 2),
        "files_read_ms": round(statistics.median(read_ms), 2),
    }


def follows(folders: Sequence[Path]) -> bool:
    """Return whether all versions after the first are read by their deltas, and equal their whole files bit for bit."""
    publisher = build(Publisher(name="delta"))
    publisher.read(folders[0])
    for folder in folders[1:]:
        read, num_bytes = publisher.read(folder)
        whole = read_weights(folder)
        if num_bytes == weights_bytes(folder) or read.keys() != whole.keys():
            return False
        if not all(torch.equal(read[name].view(torch.int16), whole[name].view(torch.int16)) for name in whole):
            return False
    return True


if __name__ == "__main__":
    main()
