"""The recipe `orak`: its games, and their server over real stdio."""

import json
import random
from pathlib import Path

import pytest

from quartet.env import make_environment, make_pool
from quartet.env.base import acting
from quartet.env.dataset.prompt import Prompts
from quartet.recipe.file import load_recipe
from quartet.types import Task, ToolCall
from recipes.orak import make_policy
from recipes.orak.games import GAMES
from recipes.orak.games.runner import Runner
from recipes.orak.games.sokoban import Sokoban
from recipes.orak.games.twenty48 import FULL, Twenty48, merged, slid
from recipes.orak.players import any_move, greedy_move, play

RECIPE = Path(__file__).parents[1] / "recipes" / "orak" / "recipe.toml"
NAMES = list(GAMES)


@pytest.mark.parametrize(
    ("line", "after", "points"),
    [
        ([0, 0, 0, 0], [0, 0, 0, 0], 0),
        ([0, 2, 0, 4], [2, 4, 0, 0], 0),
        ([2, 2, 0, 0], [4, 0, 0, 0], 4),
        ([2, 0, 0, 2], [4, 0, 0, 0], 4),
        ([2, 2, 2, 0], [4, 2, 0, 0], 4),
        ([2, 2, 2, 2], [4, 4, 0, 0], 8),
        ([4, 2, 2, 0], [4, 4, 0, 0], 4),
        ([4, 4, 8, 0], [8, 8, 0, 0], 8),
        ([2, 4, 2, 4], [2, 4, 2, 4], 0),
    ],
)
def test_equal_tiles_merge_once_and_the_first_ones_first(line, after, points):
    assert merged(line) == (after, points)


@pytest.mark.parametrize(
    ("move", "after"),
    [
        ("left", [[4, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0]]),
        ("right", [[0, 0, 0, 4], [0, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 2]]),
        ("up", [[4, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]),
        ("down", [[0, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0], [4, 2, 0, 0]]),
    ],
)
def test_a_move_of_2048_slides_every_line_in_its_direction(move, after):
    board = [[2, 2, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0]]
    assert slid(board, move)[0] == after


def test_a_blocked_move_of_2048_adds_no_tile_and_the_game_ends_without_moves():
    game = Twenty48(0)
    game.rows = [[2, 0, 0, 0], [4, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]]
    before = [list(row) for row in game.rows]
    game.play("left")
    assert game.rows == before and not game.over
    game.rows = [[2, 4, 2, 4], [4, 2, 4, 2], [2, 4, 2, 4], [4, 2, 4, 2]]
    game.play("up")
    assert game.over


@pytest.mark.parametrize("name", NAMES)
def test_a_game_is_drawn_by_its_seed_and_its_score_is_normalised(name):
    scores = {"any": [], "greedy": []}
    for seed in range(30):
        one, other = GAMES[name](seed), GAMES[name](seed)
        draw = random.Random(seed)
        while not one.over:
            move = any_move(one, draw)
            one.play(move)
            other.play(move)
            assert one.text() == other.text() and 0 <= one.score() <= 100
        scores["any"].append(one.score())
        scores["greedy"].append(play(GAMES[name](seed), greedy_move, random.Random(seed)))
        with pytest.raises(ValueError, match="over"):
            one.play(one.moves[0])
    assert len({GAMES[name](seed).text() for seed in range(30)}) > 3, "seeds draw different games"
    assert sum(scores["greedy"]) > sum(scores["any"]) > 0


def test_the_full_score_of_each_game_is_the_end_of_its_way():
    game = Twenty48(0)
    game.points = FULL
    assert game.score() == 100
    game.points *= 2
    assert game.score() == 100
    run = Runner(0)
    run.place = 15
    assert run.score() == 50
    push = Sokoban(1)
    assert push.score() == 0
    push.box = push.goal
    assert push.score() == 100


def test_an_unknown_move_is_refused_and_does_not_count():
    game = Runner(0)
    with pytest.raises(ValueError, match="walk, jump, leap"):
        game.play("fly")
    assert not game.over


@pytest.mark.slow
async def test_a_policy_plays_over_stdio_what_the_game_plays():
    recipe = load_recipe(RECIPE, ["env.sessions=1"])
    pool, environment = make_pool(recipe.env), make_environment(recipe.env)
    env = await pool.acquire()
    try:
        for name in NAMES:
            task = Task(env="mcp", family=name, seed=3)
            game, seen = GAMES[name](environment.row(task)["seed"]), await env.reset(task)
            assert [tool.function.name for tool in seen.tools] == ["play"]
            assert seen.messages[-1].content == f"Play {name}.\n{game.text()}"
            draw = random.Random(0)
            while not game.over:
                move = any_move(game, draw)
                game.play(move)
                result = await acting(env).act([ToolCall(name="play", arguments={"move": move})])
                assert result.observation.messages[0].content == game.text()
            late = await env.step('call play {"move": "left"}')
            assert "the game is over" in late.observation.messages[0].content and not late.terminated
            end = await env.step("done")
            assert end.terminated and end.rewards == {"score": pytest.approx(game.score() / 100)}
    finally:
        await pool.release(env, healthy=True)
        await pool.close()


def test_the_rows_are_those_that_the_command_writes_and_the_policy_imitates_what_a_rollout_reads():
    rows = [json.loads(line) for line in make_policy.ROWS.read_text().splitlines()]
    assert rows == make_policy.rows()
    settings = load_recipe(RECIPE).env.settings
    messages = make_policy.chat("runner", 10_000, Prompts(settings["prompt"], settings["system"]))
    assert [one["role"] for one in messages[:4]] == ["system", "user", "assistant", "tool"]
    assert messages[1]["content"] == f"Play runner.\n{Runner(10_000).text()}"
    assert messages[-1]["content"] == "done" and messages[-2]["content"].endswith("The game is over.")
