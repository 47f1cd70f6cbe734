"""Games of TextArena: played beside the package itself, for one and for two players."""

import random

import pytest

from quartet import config
from quartet.env import make_environment
from quartet.env.check.run import check_environment
from quartet.env.environment.textarena import TextArenaSession
from quartet.errors import ConfigError
from quartet.types import Outcome, Task

textarena = pytest.importorskip("textarena", reason="the extra textarena")
pytestmark = pytest.mark.campaign  # the import alone takes seconds

GUESS, BANDIT, BOARD, DICE = "GuessTheNumber-v0", "Bandit-v0", "TicTacToe-v0", "LiarsDice-v0"


def made(game: str, **settings: object) -> TextArenaSession:
    session = make_environment(config.Env(name="textarena", ids=[game], **settings)).session()
    assert isinstance(session, TextArenaSession)
    return session


def task(game: str, seed: int = 0) -> Task:
    return Task(env="textarena", family=game, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_bisection_finds_the_number_that_the_package_hides(seed):
    original = textarena.make(GUESS)
    original.reset(num_players=1, seed=seed)
    ours, low, high = made(GUESS), 1, 20
    assert "between 1 and 20" in ours.reset(task(GUESS, seed)).text
    while True:
        guess = (low + high) // 2
        original.step(f"[{guess}]")
        result = ours.step(f"I guess [{guess}]")
        if result.terminated:
            break
        low, high = (low, guess - 1) if result.observation.text.endswith("lower.") else (guess + 1, high)
    assert original.close()[0] == {0: 1} and result.reward == 1.0 and result.info == {"success": True}


def test_sessions_side_by_side_draw_what_each_alone_draws():
    def presses(*sessions: TextArenaSession) -> list[list[str]]:
        for seed, session in enumerate(sessions, 3):
            session.reset(task(BANDIT, seed))
        return [[s.step("[red]").observation.text for _ in range(8)] for s in sessions]

    def alternating(*sessions: TextArenaSession) -> list[list[str]]:
        for seed, session in enumerate(sessions, 3):
            session.reset(task(BANDIT, seed))
        steps = [[session.step("[red]").observation.text for session in sessions] for _ in range(8)]
        return [list(texts) for texts in zip(*steps, strict=True)]

    before = random.getstate()
    assert presses(made(BANDIT), made(BANDIT)) == alternating(made(BANDIT), made(BANDIT))
    assert random.getstate() == before


def test_an_invalid_move_is_an_error_and_its_repetition_ends_the_game():
    ours = made(GUESS, history=False)
    ours.reset(task(GUESS))
    first, second = ours.step("hello"), ours.step("hello")
    assert "Invalid move format" in first.observation.error and not first.terminated
    assert first.actions[0].outcome is second.actions[0].outcome is Outcome.REFUSED
    assert second.terminated and second.reward == 0.0 and not second.info["success"]


def test_two_players_take_turns_and_the_winner_is_rewarded():
    ours = made(BOARD, players=2)
    ours.reset(task(BOARD))
    *_, result = [ours.step(f"[{cell}]") for cell in (0, 3, 1, 4, 2)]
    assert result.terminated and result.info == {"rewards": [1.0, -1.0]}


def test_an_invalid_move_loses_a_game_of_two():
    ours = made(BOARD, players=2)
    ours.reset(task(BOARD))
    ours.step("[4]")
    assert ours.step("[4]").info == {"rewards": [1.0, -1.0]}


def test_an_invalid_move_loses_a_game_of_three_that_would_go_on_without_its_player():
    ours = made(DICE, players=3)
    ours.reset(task(DICE))
    ours.step("[Bid: 1, 2]")
    lost = ours.step("I pass")
    assert lost.terminated and lost.info == {"rewards": [0.5, -1.0, 0.5]}
    assert lost.actions[0].outcome is Outcome.REFUSED


def test_wrong_ids_and_numbers_of_players_are_errors_with_advice():
    with pytest.raises(ConfigError, match="GuessTheNumber"):
        made("GuessTheNumbr-v0").reset(task("GuessTheNumbr-v0"))
    with pytest.raises(ConfigError, match="has to be 2"):
        made(BOARD).reset(task(BOARD))


async def test_it_passes_all_checks(monkeypatch):
    monkeypatch.setattr("quartet.env.checks.cost.SECONDS", 0.05)
    env = config.Env(name="textarena", sessions=2, ids=[GUESS, "TowerOfHanoi-v0", "FrozenLake-v0-random"])
    results = await check_environment(env, range(3), lambda _: None)
    assert [result for result in results if not result.passed] == []
