"""Games of OpenSpiel, played beside the package itself: by one policy against its opponents, and by several in turn."""

import random

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.spiel.session import OpenSpielSession
from quartet.errors import ConfigError
from quartet.types import Outcome, StepResult, Task

pyspiel = pytest.importorskip("pyspiel", reason="`make test-adapters` installs it")
pytestmark = pytest.mark.campaign

BOARD, POKER, ROCK = "tic_tac_toe", "kuhn_poker", "matrix_rps"


def made(game: str, **settings: object) -> OpenSpielSession:
    session = make_environment(config.Env(name="openspiel", games=[game], **settings)).session()
    assert isinstance(session, OpenSpielSession)
    return session


def task(game: str, seed: int = 0) -> Task:
    return Task(env="openspiel", family=game, seed=seed)


def moves(text: str) -> list[str]:
    """Return the legal moves that an observation names."""
    return text.rpartition("one of ")[2].removesuffix(".").split(", ")


def play(session: OpenSpielSession, game: str, seed: int) -> StepResult:
    """Play the first legal move to the end."""
    seen = session.reset(task(game, seed))
    while True:
        result = session.step(moves(seen.text)[0] if "x(" in seen.text else moves(seen.text)[-1])
        if result.terminated:
            return result
        seen = result.observation


def test_two_policies_play_the_game_that_the_package_plays():
    ours, state = made(BOARD, players=2), pyspiel.load_game(BOARD).new_initial_state()
    seen, draw = ours.reset(task(BOARD)), random.Random(0)
    while True:
        assert seen.text.startswith(str(state)) and f"as player {state.current_player()}." in seen.goal
        choice = draw.choice(state.legal_actions())
        result = ours.step(f"I play {state.action_to_string(choice)}")
        state.apply_action(choice)
        assert result.terminated == state.is_terminal()
        if result.terminated:
            break
        seen = result.observation
    assert result.info == {"rewards": list(state.returns())}


def test_the_value_of_kuhn_poker_is_the_share_of_the_largest_utility():
    ours = made(POKER, players=2)
    results = []
    for seed in range(20):
        ours.reset(task(POKER, seed))
        assert not ours.step("bet").terminated
        results.append(tuple(ours.step("bet").info["rewards"]))
    assert set(results) == {(1.0, -1.0), (-1.0, 1.0)}, "two units of at most two"
    ours.reset(task(POKER))
    ours.step("bet")
    assert ours.step("pass").info == {"rewards": [0.5, -0.5]}


def test_a_single_policy_plays_both_seats_against_each_opponent():
    random_opponent, search = made(BOARD), made(BOARD, opponent="mcts", simulations=200)
    weak = [play(random_opponent, BOARD, seed).reward for seed in range(20)]
    strong = [play(search, BOARD, seed).reward for seed in range(20)]
    assert sum(weak) > sum(strong) and max(strong) <= 0, "search never loses to the first legal move"
    assert {play(random_opponent, BOARD, seed).info["success"] for seed in range(20)} == {True, False}
    goals = {random_opponent.reset(task(BOARD, seed)).goal for seed in range(2)}
    assert goals == {f"Play {BOARD} as player 0.", f"Play {BOARD} as player 1."}


def test_an_illegal_move_is_an_error_for_one_policy_and_loses_a_game_of_two():
    alone, two = made(BOARD), made(BOARD, players=2)
    before = alone.reset(task(BOARD))
    result = alone.step("x(7,7)")
    assert result.actions[0].outcome is Outcome.PARSE_ERROR and "x(0,0)" in result.observation.error
    assert (result.observation.text, result.terminated) == (before.text, False)
    two.reset(task(BOARD))
    two.step("x(0,0)")
    assert two.step("o(0,0)").info == {"rewards": [1.0, -1.0]}


def test_a_game_that_ends_before_the_first_move_is_drawn_again():
    name, one = "nim(pile_sizes=3;0)", "nim(pile_sizes=1;0)"
    ours, move = made(name), "pile:1, take:1;"
    for seed in range(1, 40, 2):  # the opponent begins, and takes all three with a third of its moves
        seen = ours.reset(task(name, seed))
        assert "Moves: " in seen.text and seen == ours.reset(task(name, seed))
    while not (ended := ours.step(move)).terminated:
        assert not ended.observation.error
    again = ours.step("any")
    assert again.terminated and (again.reward, again.info) == (ended.reward, ended.info)
    with pytest.raises(ConfigError, match="ended before the first move of player 1 in each of 100 draws"):
        made(one).reset(task(one, 1))


def test_simultaneous_moves_become_turns_and_hide_the_first():
    ours = made(ROCK, players=2)
    ours.reset(task(ROCK))
    second = ours.step("Rock").observation
    assert "as player 1." in second.goal and "Rock" not in second.text.partition("Moves:")[0].split("\n")[0]
    assert ours.step("Paper").info == {"rewards": [-1.0, 1.0]}


def test_wrong_games_and_numbers_of_players_are_errors_with_advice():
    with pytest.raises(ConfigError, match="tic_tac_to"):
        made("tic_tac_to").reset(task("tic_tac_to"))
    with pytest.raises(ConfigError, match="has 2 players"):
        made(BOARD, players=3).reset(task(BOARD))


async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="openspiel", sessions=2, games=[BOARD, POKER, "blackjack"], opponent="mcts", simulations=10)
    results = await check_environment(env, range(3), lambda _: None)
    assert [result for result in results if not result.passed] == []
