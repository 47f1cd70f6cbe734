"""The comparison of schedules: its figures against numbers worked out by hand, and one real run."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks import decoupling
from benchmarks.modes.figures import CpuSample, figures
from benchmarks.modes.modes import COUPLED, ROLLART_MODES, modes, recipe
from benchmarks.modes.run import run
from benchmarks.modes.start import ACTING, LONG_SHARE, REASONING, make_start, turns
from benchmarks.modes.worlds import desktops, pretended, single_turn
from benchmarks.workload import read_workload
from quartet.actions.grammar import clicked, parse_action
from quartet.config import Recipe

INSTANT = decoupling.WORKLOADS / "step_0_ms.json"
TRAINED = {"kind": "train_step", "update_seconds": 1.0, "publish_seconds": 0.5, "lag_histogram": {"0": 2}}
ROLLOUT = {
    "kind": "rollout",
    "status": "completed",
    "turns": 5,
    "response_tokens": 100,
    "reset_seconds": 1.0,
    "step_seconds": 0.5,
    "wall_seconds": 4.0,
}


def of_mode(mode: str, policy: Path = Path("policy"), sessions: int = 4) -> Recipe:
    return recipe(pretended(policy, INSTANT), modes(2)[mode], groups=1, sessions=sessions, seed=0)


@pytest.mark.parametrize("mode", [*modes(2).values(), *ROLLART_MODES.values()])
def test_every_mode_is_a_valid_recipe_and_trains_all_that_is_finished(mode):
    assert recipe(pretended(Path("policy"), INSTANT), mode, groups=1, sessions=4, seed=0).filters == []
    loaded = recipe(single_turn(Path("reasoning"), INSTANT), mode, groups=1, sessions=4, seed=0)
    assert (loaded.rollout.max_turns, Path(loaded.model.path).name) == (1, "reasoning")
    real = recipe(desktops(), mode, groups=1, sessions=3, seed=0)
    assert (real.env.name, real.env.sessions, real.filters) == ("desktop", 3, [])


def test_figures_are_those_between_the_first_and_the_last_train_step():
    """Ten seconds, two rollouts in them, four sessions; the engine uses half a core, the trainer 1.5 of 10 s."""
    rollouts = [ROLLOUT | {"time": time} for time in (99.0, 101.0, 110.0, 111.0)]
    rollouts.append(ROLLOUT | {"time": 102.0, "status": "cancelled"})
    steps = [
        TRAINED | {"time": 100.0},
        TRAINED | {"time": 110.0, "lag_histogram": {"0": 1, "1": 1}},
        TRAINED | {"time": 120.0},
    ]
    cpu = [CpuSample(98.0, 1.0), CpuSample(102.0, 3.0), CpuSample(118.0, 11.0)]
    got = figures(of_mode(COUPLED), rollouts, steps, cpu, 0.9, train_steps=2)
    assert got.actions_per_minute == 60 * 10 / 10
    assert got.rollouts_per_second == 0.2
    assert got.generated_tokens_per_second == pytest.approx(200 / 8.5), "training and generating take turns"
    assert got.environment_utilisation == pytest.approx(2 * 1.5 / 40)
    assert got.engine_utilisation == pytest.approx(0.5)
    assert got.trainer_utilisation == pytest.approx(0.15)
    assert got.seconds_to_train_steps == pytest.approx(110 - 95)
    assert got.lag_histogram == {"0": 3, "1": 1}
    assert figures(of_mode("rollout_wise"), rollouts, steps, cpu, 0.9, train_steps=2) == replace(
        got, generated_tokens_per_second=20.0
    )
    with pytest.raises(ValueError, match="ended after 3 train steps instead of 4"):
        figures(of_mode(COUPLED), rollouts, steps, cpu, 0.9, train_steps=4)


def test_real_desktops_have_smaller_defaults_and_given_options_prevail():
    given = decoupling.main.make_context("decoupling", ["--env", "desktop", "--groups", "1"]).params
    assert (given["parts"], given["others"], given["groups"], given["repetitions"]) == ("modes", "", 1, 3)
    assert decoupling.main.make_context("decoupling", []).params["groups"] == 4


class Linear(decoupling.Bench):
    """Experiments in which each session does one action per minute."""

    def _searched(self, mode, world, groups, sessions):
        return {"actions_per_minute": float(sessions)}


@pytest.mark.parametrize(("wanted", "ratio"), [(1, 4), (8, 4), (9, 2.667), (13, 2), (32, 1), (33, None)])
def test_the_fewest_sessions_are_found_and_a_miss_is_no_number(wanted, ratio, tmp_path):
    bench = Linear(tmp_path, tmp_path, [], max_lag=1, train_steps=1)
    found = bench.fewest_sessions({}, groups=4, sessions=32, wanted=wanted)
    assert found["sessions_ratio"] == ratio and len(found["decoupled_sweep"]) <= 3


@pytest.mark.parametrize("tail", [ACTING, REASONING])
def test_the_player_speaks_with_a_long_tail_and_every_response_is_an_action(tail):
    chats = [chat for seed in range(60) for chat in turns(seed, tail)]
    answers = [chat[-1]["content"] for chat in chats]
    dots = sorted(answer.count(".") for answer in answers)
    mean = LONG_SHARE * tail.long_dots + (1 - LONG_SHARE) * tail.short_dots
    assert sum(dots) / len(dots) == pytest.approx(mean, rel=0.25)
    assert dots[0] >= 1 and dots[-1] <= tail.max_tokens
    assert dots[len(dots) // 2] < mean / 2, "the median lies far below the mean"
    assert all(answer.endswith("done") or clicked(parse_action(answer)) for answer in answers)


def test_latencies_at_another_scale_are_the_same_latencies(tmp_path):
    desktop = decoupling.WORKLOADS / "desktop.json"
    slower = read_workload(decoupling.rescale(desktop, 0.1, tmp_path))
    assert slower == replace(read_workload(desktop), time_scale=0.1) != read_workload(desktop)


@pytest.mark.campaign
def test_a_run_is_watched_from_outside(tmp_path):
    policy = make_start(tmp_path / "start", ACTING, steps=1, shape={"hidden_size": 16, "num_layers": 1, "num_heads": 1})
    short = of_mode("rollout_wise", policy)
    short = short.model_copy(update={"rollout": short.rollout.model_copy(update={"max_turns": 3})})
    got = run(short, tmp_path, train_steps=2)
    assert got.actions_per_minute > 0 and got.seconds_to_train_steps > 0
    assert got.engine_utilisation > 0
    assert sum(got.lag_histogram.values()) == 2 * 8
