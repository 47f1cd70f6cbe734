"""Cautions of a comparison, on results that no run made."""

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
