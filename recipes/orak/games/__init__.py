"""The games by name."""

from .base import Game
from .runner import Runner
from .sokoban import Sokoban
from .twenty48 import Twenty48

GAMES: dict[str, type[Game]] = {game.name: game for game in (Twenty48, Runner, Sokoban)}
