"""Games of OpenSpiel: one policy against a random or searching opponent, or several policies in turn."""

import random
from typing import Any, Literal

from quartet.config import Recipe
from quartet.config.section import Positive, Section
from quartet.env.base import Env, Environment
from quartet.env.extra import import_extra
from quartet.env.spiel.session import OpenSpielSession, Opponent
from quartet.env.turns import check_players
from quartet.errors import ConfigError, nearest

EXPLORATION = 2.0
"""Constant of UCT of the opponent `mcts`, as in OpenSpiel's own example."""
SEARCH_MEGABYTES = 100


class OpenSpiel(Environment):
    """Games of OpenSpiel by their names, which are the task families."""

    class Settings(Section):
        games: list[str]
        """Games with their parameters, for example `kuhn_poker` or `connect_four(rows=5)`."""
        players: Positive = 1
        """Number of policies that play. Several need the loop `alternate`, and a game in which they strictly take
        turns; an illegal move then loses the game."""
        opponent: Literal["random", "mcts"] = "random"
        """Player of the other seats: uniform legal moves, or Monte Carlo tree search."""
        simulations: Positive = 100
        """Simulations per move of the opponent `mcts`."""
        view: Literal["observation", "information_state"] = "observation"
        """Observation of a player: the game's observation, or all that the player has learned since the start."""
        turn_limit: Positive | None = None
        """Turn limit of every family in evaluations; training applies it with `control.horizon = "suite"`. By default
        the maximum length of the game."""

    settings: Settings
    deterministic = True
    extra = "openspiel"
    grammar = "the name of a legal move"
    source = "Lanctot et al. 2019, OpenSpiel: A Framework for Reinforcement Learning in Games"
    first_settings = {
        "env": {"games": ["tic_tac_toe"], "screenshots": False},
        "rollout": {"max_turns": 9, "max_tokens": 16},
    }

    @classmethod
    def check(cls, settings: Any, recipe: Recipe) -> None:
        check_players(settings.players, recipe)

    def modules(self) -> list[str]:
        return ["pyspiel"]

    def families(self) -> list[str]:
        return self.settings.games

    def session(self) -> Env:
        settings = self.settings
        chosen: Any = OpenSpielSession(self.load, self.opponent, players=settings.players, view=settings.view)
        return chosen  # its plain functions are called in a thread

    def max_turns(self, family_name: str) -> int | None:
        return self.settings.turn_limit or self.load(family_name).max_game_length()

    def load(self, family: str) -> Any:
        """Load a game; one with simultaneous moves becomes one with turns. Raise `ConfigError` for an unknown game."""
        spiel = import_extra("pyspiel", self.extra)
        try:
            return spiel.load_game_as_turn_based(family)
        except spiel.SpielError as error:
            first, names = str(error).partition(".")[0], spiel.registered_names()
            raise ConfigError(f"env.games: {first}", nearest(family.partition("(")[0], names)) from error

    def opponent(self, game: Any, draw: random.Random) -> Opponent:
        """Return the player of the other seats."""
        if self.settings.opponent == "random":
            return lambda state: draw.choice(state.legal_actions())
        spiel, seed = import_extra("pyspiel", self.extra), draw.randrange(2**31)
        evaluator = spiel.RandomRolloutEvaluator(1, seed)
        search = (EXPLORATION, self.settings.simulations, SEARCH_MEGABYTES, True, seed, False)
        return spiel.MCTSBot(game, evaluator, *search).step
