"""Two policies trained together and one after the other: valid recipes, and ratios of their times."""

import pytest

from benchmarks.decoupling import WORKLOADS
from benchmarks.modes.modes import modes
from benchmarks.modes.worlds import pretended
from benchmarks.raw_results import RawResults
from benchmarks.together.run import APART, APART_SYNCHRONOUS, POLICIES, TOGETHER, WAYS, Timed, measure, window
from benchmarks.together.views import VIEWS

WORKLOAD = WORKLOADS / "step_0_ms.json"


def timed(seconds: float) -> Timed:
    return Timed(seconds_per_train_step=seconds, engine_utilisation=0.5, lost=0, trained_twice=0)


def test_ratios_are_taken_within_a_repetition(tmp_path):
    raw = RawResults(tmp_path / "together.jsonl", Timed)
    for seed, (together, apart, synchronous) in enumerate([(1, 2, 4), (2, 2, 10), (1, 3, 3)], 1):
        for way, seconds in ((TOGETHER, together), (APART, apart), (APART_SYNCHRONOUS, synchronous)):
            raw.add({"way": way, "seed": seed}, timed(seconds))
    assert VIEWS["ratio"](raw.file) == "2.00 (1.00 to 3.00)"
    assert VIEWS["ratio_to_synchronous"](raw.file) == "4.00 (3.00 to 5.00)"
    assert VIEWS["repetitions"](raw.file) == "3"
    assert "| together | 1.00 | 50 % |" in VIEWS["table"](raw.file)


def test_the_slower_policy_counts_and_the_first_step_and_those_after_the_last_do_not():
    committed = {"solver": [10.0, 12.0, 14.0, 90.0], "reviewer": [11.0, 15.0, 19.0]}
    assert window(committed, POLICIES, 3) == (10.0, 19.0, 4.0)


@pytest.mark.parametrize("committed", [{"solver": [1.0, 2.0]}, {"solver": [1.0, 2.0], "reviewer": [1.0]}])
def test_a_run_that_did_not_train_enough_has_no_time(committed):
    with pytest.raises(ValueError, match="2 train steps of solver, reviewer were to be made"):
        window(committed, POLICIES, 2)


def test_each_policy_is_trained_once_in_every_way():
    for schedule, runs in WAYS.values():
        assert sorted(policy for trained in runs for policy in trained) == sorted(POLICIES)
        assert schedule in modes(max_lag=2)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("way", WAYS)
def test_a_way_trains_both_policies_and_loses_nothing(bandit_policy, way):
    world = pretended(bandit_policy, WORKLOAD)
    world["rollout"] |= {"loop": "alternate", "max_turns": 2, "max_tokens": 8}
    found = measure(way, world, groups=1, sessions=4, seed=1, train_steps=2)
    assert (found.lost, found.trained_twice) == (0, 0)
    assert found.seconds_per_train_step > 0
