"""The recipe `orak`: its leaderboard, and the ratings of its arena."""

import json
from math import log10
from pathlib import Path

import pytest
from click.testing import CliRunner

from quartet.errors import ConfigError
from quartet.ledger.evaluations import EpisodeRewards
from quartet.recipe.file import load_recipe
from recipes.orak import arena, leaderboard
from recipes.orak.games import GAMES
from recipes.orak.leaderboard import RECIPE
from recipes.orak.players import PLAYERS
from recipes.orak.ratings import rate

NAMES = list(GAMES)


def test_the_leaderboard_has_means_with_intervals_and_the_best_policy_first():
    weak = [EpisodeRewards("a", {"main": 0.1}), EpisodeRewards("a", {"main": 0.3}), EpisodeRewards("b", {"main": 0.0})]
    strong = [EpisodeRewards("a", {"main": 1.0}), EpisodeRewards("a", {"main": 0.5}), EpisodeRewards("b", {"main": 1})]
    entries = [leaderboard.entry("weak", weak), leaderboard.entry("strong", strong)]
    assert entries[0].games["a"].mean == pytest.approx(20) and entries[0].mean.mean == pytest.approx(10)
    assert entries[0].games["a"].low == pytest.approx(20 - 12.706 * 10, abs=0.01)
    assert entries[0].mean.low is None, "one episode of a game says nothing about others"
    lines = leaderboard.table(entries).splitlines()
    assert lines[0] == "| policy | a | b | mean |" and lines[2].startswith("| strong | 75.0 (")


def test_the_mean_over_games_has_the_interval_of_independent_means():
    rewards = [EpisodeRewards(game, {"main": value}) for game in "ab" for value in (0.2, 0.4)]
    one = leaderboard.entry("x", rewards)
    assert one.games["a"].high is not None and one.mean.high is not None
    assert one.mean.high - one.mean.mean == pytest.approx((one.games["a"].high - one.games["a"].mean) / 2**0.5)


def test_the_players_without_a_model_play_the_held_out_rows():
    recipe = load_recipe(RECIPE)
    for name in PLAYERS:
        assert len(leaderboard.entry(name, leaderboard.episodes_of(name, recipe)).games) == len(NAMES)


def test_two_players_are_rated_by_the_odds_of_their_points():
    first, second = rate(["a", "b"], [[0, 74.5], [24.5, 0]])
    assert (first.player, first.points, first.rating.n) == ("a", 74.5, 99)
    assert first.rating.mean - second.rating.mean == pytest.approx(400 * log10(75 / 25))
    assert first.rating.mean == pytest.approx(-second.rating.mean)
    # The variance of the log-odds is 1 / (n p (1 - p)), and each rating has half of the difference.
    assert first.rating.high - first.rating.mean == pytest.approx(1.959964 * 173.7178 / 2 / (100 * 0.75 * 0.25) ** 0.5)


def test_strengths_are_recovered_from_the_points_that_they_predict():
    strengths, games = {"a": 4.0, "b": 2.0, "c": 1.0}, 1e9
    points = [[0 if p == q else games * p / (p + q) for q in strengths.values()] for p in strengths.values()]
    rated = rate(list(strengths), points)
    assert [one.player for one in rated] == ["a", "b", "c"]
    assert rated[0].rating.mean - rated[1].rating.mean == pytest.approx(400 * log10(2), abs=1e-3)
    assert rated[1].rating.mean == pytest.approx(0, abs=1e-3)


def test_a_player_that_wins_every_game_has_a_finite_rating():
    first, second = rate(["a", "b"], [[0, 10], [0, 0]])
    assert first.rating.mean - second.rating.mean == pytest.approx(400 * log10(10.5 / 0.5))


def test_games_are_counted_for_both_seats():
    episodes = [EpisodeRewards("x", {arena.FIRST: a, arena.SECOND: b}) for a, b in ((1, 0), (1, 0), (0, 1), (0, 0))]
    one = arena.counted("a", "b", episodes)
    assert (one.wins, one.draws, one.losses, one.points) == (2, 1, 1, (2.5, 1.5))
    rated = {rating.player: rating.points for rating in arena.ratings(["a", "b"], [one, arena.counted("b", "a", [])])}
    assert rated == {"a": 2.5, "b": 1.5}
    with pytest.raises(ConfigError, match="no game for two policies"):
        arena.pair_recipe(load_recipe(RECIPE), Path(), Path())


@pytest.mark.slow
def test_two_policies_meet_on_both_seats_in_the_arena(tmp_path):
    names = ["miniwob-start", "locks_forks-start"]
    options = ["--folder", str(tmp_path), "--set", "evaluation.episodes_per_family=3", "--json"]
    outcome = CliRunner().invoke(arena.main, [*names, *options])
    assert outcome.exit_code == 0, outcome.output
    found = json.loads(outcome.stdout)
    assert [(one["first"], one["second"]) for one in found["games"]] == [tuple(names), tuple(reversed(names))]
    assert [one["wins"] + one["draws"] + one["losses"] for one in found["games"]] == [3, 3]
    assert [one["rating"]["n"] for one in found["ratings"]] == [6, 6]


@pytest.mark.slow
def test_a_policy_is_ranked_beside_the_players_without_a_model(tmp_path):
    options = ["--folder", str(tmp_path), "--set", "evaluation.episodes_per_family=2", "--set", "env.sessions=2"]
    outcome = CliRunner().invoke(leaderboard.main, ["orak-start", *options, "--json"])
    assert outcome.exit_code == 0, outcome.output
    lines = {one["policy"]: one for one in json.loads(outcome.stdout)}
    assert [*lines] == [*PLAYERS, "orak-start"]
    assert all({*one["games"]} == {*NAMES} and one["mean"]["n"] == 2 * len(NAMES) for one in lines.values())
    assert all(lines[name]["mean"]["mean"] > 0 for name in PLAYERS)
