"""Cautions and differences of a comparison, on results that no run made."""

from quartet.report.comparison.cautions import cautions
from quartet.report.comparison.groups import Group
from quartet.report.comparison.results import HeldOutTasks, RunResult


def group(label: str, *seeds: int) -> Group:
    tasks = HeldOutTasks(env="bandit", suite="", families=(), first_seed=0, episodes_per_family=1)
    runs = [
        RunResult(
            run=f"{label}-{seed}",
            born=0.0,
            held_out=tasks,
            uncounted_share=0.0,
            recipe=label,
            seed=seed,
            settings={},
            curve=[],
            success_sampled=None,
            train_seconds=1.0,
            train_steps=1,
            rollouts=1,
            prompt_tokens=1,
            generated_tokens=1,
            stop_reason="train.max_train_steps",
        )
        for seed in seeds
    ]
    return Group(label=label, runs=runs)


def test_methods_without_a_common_seed_have_no_difference():
    (caution,) = cautions([group("grpo", 0, 1), group("rloo", 1, 2), group("dart", 2, 3)])
    assert caution.startswith("dart and grpo have no seed in common")
    assert cautions([group("grpo", 0, 1), group("rloo", 1)]) == cautions([group("grpo", 0)]) == []


def test_a_difference_needs_the_value_of_every_common_seed():
    """Otherwise the method that fails on the hard seed would look cheaper."""
    costs = {"a-0": 1000.0, "a-1": 1000.0, "a-2": 5000.0, "b-0": 900.0, "b-1": 900.0}
    first, second = group("a", 0, 1, 2), group("b", 0, 1, 2)
    assert second.minus(first, lambda run: costs.get(run.run)) is None
    common = group("b", 0, 1, 7).minus(first, lambda run: costs.get(run.run, 0.0))
    assert common is not None and (common.mean, common.n) == (-100.0, 2)
