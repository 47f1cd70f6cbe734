r"""1. A first run: train a policy to open locks, and print a summary of the run.

    python examples/1_first_run.py

A page shows one sign after the other, and some buttons. Each sign has one right button, which the policy finds only by
trial. The recipe and its initial policy, a transformer with 35,000 parameters, ship with Quartet (`quartet recipes`
lists all recipes). The same from a shell:

    quartet train locks_forks --set rollout.brancher=none --set control.rollouts_per_group=8 \
        --set train.max_train_steps=12

Five processes run concurrently: data manager, worker, engine, environment host, trainer. If you kill any of them, the
run continues: no trajectory is lost or trained twice. `quartet view runs/tutorial-1` shows the run in a browser.
"""

from pathlib import Path

from quartet.recipe.file import load_recipe
from quartet.runtime.run import run_recipe

RUN = Path("runs/tutorial-1")
SETTINGS = [
    "rollout.brancher=none",  # tutorial 4 is about forks
    "control.rollouts_per_group=8",
    "train.max_train_steps=12",
    "evaluation.episodes_per_family=4",
]


def main() -> None:
    recipe = load_recipe(Path("locks_forks"), SETTINGS)
    summary = run_recipe(recipe, RUN, resume=False, fresh=True, quiet=False)
    print(f"held-out success: {summary['success_before_sampled']:.0%} -> {summary['success_after_sampled']:.0%}")
    print(f"{summary['rollouts_finished']} rollouts, {summary['train_steps']} train steps")
    print(f"lost: {summary['lost']}, trained twice: {summary['trained_twice']}")
    print("trajectories by the lag of their oldest token:", summary["lag_histogram"])


if __name__ == "__main__":  # the modules are processes that import this file
    main()
