"""6. From laptop to cluster: one recipe, and three ways to run its modules.

    python examples/6_from_laptop_to_cluster.py

Modules communicate only through rows of the ledger, files that rows name, and HTTP. So a few settings of the recipe
decide where they run; the script trains in the first three ways:

| modules | setting | effect |
|---|---|---|
| in one process | `runtime.kind = "synchronous"` | the modules take turns: a debugger stops at any line |
| in one process each | the default | the modules run concurrently |
| with two engines | `engine.replicas = 2` | a router sends each request to the engine with the least work |
| with a database server | `ledger.url = "postgresql://..."` | the ledger can be on another machine |
| on a Ray cluster | `runtime.kind = "ray"` | each module on a node with the resources that it needs |

In each way no trajectory is lost or trained twice, and no token over the lag bound is trained on.
"""

from pathlib import Path

from quartet.recipe.file import load_recipe
from quartet.runtime.run import run_recipe

RUNS = Path("runs/tutorial-6")
SETTINGS = ["rollout.brancher=none", "train.max_train_steps=3", "evaluation.before_and_after=false"]
WAYS = {
    "one-process": ["runtime.kind=synchronous", "admission.max_lag=0"],
    "processes": [],
    "two-engines": ["engine.replicas=2"],
}


def main() -> None:
    for way, settings in WAYS.items():
        recipe = load_recipe(Path("locks_forks"), SETTINGS + settings)
        summary = run_recipe(recipe, RUNS / way, resume=False, fresh=True, quiet=True)
        over_lag = summary["policies"]["main"]["over_lag"]
        print(f"{way:12} {summary['train_steps']} train steps of {summary['rollouts_finished']} rollouts;", end=" ")
        print(f"lost {summary['lost']}, trained twice {summary['trained_twice']}, steps over the lag bound {over_lag}")


if __name__ == "__main__":
    main()
