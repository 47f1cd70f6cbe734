"""Players without a model, for the initial policy's imitation and as lines of the leaderboard to compare with."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from quartet.config import Recipe
from quartet.env import make_environment, suite_families
from quartet.ledger.evaluations import EpisodeRewards
from quartet.types import Task

from .games import GAMES
from .games.base import Game

Player = Callable[[Game, random.Random], str]
"""Function from a game and random numbers to a move."""


def any_move(game: Game, draw: random.Random) -> str:
    """Return a move at random."""
    return draw.choice(game.moves)


def greedy_move(game: Game, draw: random.Random) -> str:
    """Return a move after which the score is highest among those that do not end the game early, at random among
    equals."""
    results: dict[str, tuple[bool, float]] = {}
    for move in game.moves:
        after = deepcopy(game)
        after.play(move)
        results[move] = (not after.over or after.score() >= 100, after.score())
    best = max(results.values())
    return draw.choice([move for move, result in results.items() if result == best])


def play(game: Game, player: Player, draw: random.Random) -> float:
    """Play a game to its end, and return the score."""
    while not game.over:
        game.play(player(game, draw))
    return game.score()


PLAYERS: dict[str, Player] = {"random moves": any_move, "greedy moves": greedy_move}
"""Players of the leaderboard, by name."""


def episodes_of(name: str, recipe: Recipe) -> list[EpisodeRewards]:
    """Return the rewards of a player in the games that an evaluation of the recipe plays."""
    environment: Any = make_environment(recipe.env)
    found: list[EpisodeRewards] = []
    for seed in recipe.evaluation.reported_seeds:
        for family in suite_families(recipe.env):
            row = environment.row(Task(env=recipe.env.name, family=family, seed=seed))
            score = play(GAMES[row["game"]](row["seed"]), PLAYERS[name], random.Random(f"{name}/{family}/{seed}"))
            found.append(EpisodeRewards(family, {name: score / 100}))
    return found
