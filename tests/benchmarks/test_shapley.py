"""Shapley values: the axioms that define them, a closed form, and the table of measured coalitions."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.learning_experiments.report import Run
from benchmarks.raw_results import RawResults
from benchmarks.strategies.capabench import PARTS, Main, arm
from benchmarks.strategies.shapley import coalitions, shapley
from benchmarks.strategies.views import attribution

PLAYERS = ["a", "b", "c"]
GAMES = st.lists(st.floats(-1, 1), min_size=8, max_size=8).map(
    lambda values: dict(zip(coalitions(PLAYERS), values, strict=True))
)


@given(game=GAMES)
def test_values_are_the_mean_gain_over_all_orders_and_sum_to_the_gain_of_all(game):
    orders = list(permutations(PLAYERS))
    gains = dict.fromkeys(PLAYERS, 0.0)
    for order in orders:
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            gains[player] += (game[before | {player}] - game[before]) / len(orders)
    values = shapley(PLAYERS, game)
    assert values == pytest.approx(gains)
    assert sum(values.values()) == pytest.approx(game[frozenset(PLAYERS)] - game[frozenset()])


def test_an_additive_game_returns_its_addends_and_a_dummy_gets_nothing():
    worth = {"a": 0.5, "b": -0.25, "c": 0.0}
    game = {some: sum(worth[player] for player in some) for some in coalitions(PLAYERS)}
    assert shapley(PLAYERS, game) == pytest.approx(worth)


def test_two_parts_that_help_only_together_share_the_gain():
    game = {some: float({"a", "b"} <= some) for some in coalitions(PLAYERS)}
    assert shapley(PLAYERS, game) == pytest.approx({"a": 0.5, "b": 0.5, "c": 0})


def test_the_table_shows_what_each_part_adds(tmp_path: Path):
    """The pool adds two points in both seeds, the numbers of rollouts two and four: mean 3, standard error 1, and
    t(1) = 12.706."""
    raw = RawResults(tmp_path / "strategies_capabench.jsonl", Run)
    for some in coalitions([*PARTS]):
        for seed, gain in ((10, 0.02), (11, 0.04)):
            area = 0.5 + gain * ("rollouts" in some) + 0.02 * ("pool" in some)
            run = Run(figures=dict.fromkeys(Main.figures, 0.0) | {"area": area}, tokens=8000, cpu_seconds=1.0)
            raw.add({"arm": arm(some), "seed": seed, "settings": Main.settings(arm(some))}, run)
    table = attribution(raw.file)
    assert "| +3.0 (−9.7 to +15.7) |" in next(line for line in table.splitlines() if line.startswith("| rollouts"))
    assert "| +2.0 (+2.0 to +2.0) |" in next(line for line in table.splitlines() if line.startswith("| pool"))
    assert table.splitlines()[-1] == "| all together | | +5.0 (−7.7 to +17.7) |"
