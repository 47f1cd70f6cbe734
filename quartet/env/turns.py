"""Games in which several policies take turns: the loop that they need, and the order of the players."""

from collections.abc import Iterable

from quartet.config import Recipe
from quartet.errors import ConfigError


def check_players(players: int, recipe: Recipe) -> None:
    """Raise `ConfigError` unless several players have the loop `alternate`, and a single one has another loop."""
    loop = recipe.rollout.loop.name
    if (players > 1) != (loop == "alternate"):
        raise ConfigError(
            f"env.players is {players} and rollout.loop is {loop!r}",
            "several players need the loop 'alternate', and a single player any other",
        )


class TurnOrder:
    """Order in which the players of one game begin, and then have to go on."""

    def __init__(self, family: str, players: int) -> None:
        """Expect `players` players; the first call of `expect` for each of them gives it its place."""
        self._family, self._players = family, players
        self._begun: list[int] = []

    def expect(self, player: int, moves: int) -> None:
        """Raise `ConfigError` unless it is the player's turn after `moves` moves."""
        if len(self._begun) < self._players and player not in self._begun:
            self._begun.append(player)
        if self._begun[moves % self._players :][:1] != [player]:
            raise ConfigError(f"the players of {self._family} do not strictly take turns", "choose another game")

    def sort(self, players: Iterable[int]) -> list[int]:
        """Return the players in the order of their turns; those that had none come last."""
        return [*self._begun, *(player for player in players if player not in self._begun)]
