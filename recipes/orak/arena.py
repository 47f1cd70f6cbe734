"""Battle arena: every pair of policies plays a game for two on both seats; Elo ratings from the results.

    python -m recipes.orak.arena miniwob-start runs/pennies --recipe pennies

The recipe has an environment for two players and the loop `alternate`. Its policies are replaced by those of the pair.
"""

import json
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import click
import msgspec

from quartet.cli.parameters import JSON, SET, PolicyOrRun, RecipeName
from quartet.config import Recipe
from quartet.config.policies import PolicySource
from quartet.errors import ConfigError
from quartet.ledger.evaluations import EpisodeRewards
from quartet.recipe.file import load_recipe
from quartet.terminal.say import say

from .evaluated import evaluated, policy_folder
from .leaderboard import shown
from .ratings import Rating, rate

FIRST, SECOND = "first", "second"
"""Names of the policies of a pair, in the order of their seats."""


class Games(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one pair in one order of seats; wins and losses are those of the first player."""

    first: str
    second: str
    wins: int
    draws: int
    losses: int

    @property
    def points(self) -> tuple[float, float]:
        """Points of both players: 1 for a win, half for a draw."""
        return self.wins + self.draws / 2, self.losses + self.draws / 2


def pair_recipe(recipe: Recipe, first: Path, second: Path) -> Recipe:
    """Return the recipe with two policies on the two seats. Raise `ConfigError` unless it is a game for two."""
    if recipe.rollout.loop.name != "alternate" or recipe.rollout.loop.settings["players"] != 2:
        raise ConfigError(
            f"the recipe {recipe.name} is no game for two policies", "set rollout.loop = 'alternate', with two players"
        )
    # One of them has to count as trained, and is the first to move; an evaluation trains neither.
    policies = {
        FIRST: PolicySource(source=str(policy_folder(first))),
        SECOND: PolicySource(source=str(policy_folder(second)), trained=False),
    }
    return recipe.model_copy(update={"policies": policies})


def counted(first: str, second: str, episodes: Sequence[EpisodeRewards]) -> Games:
    """Count the games of a pair: the policy with the higher reward has won."""
    margins = [one.by_policy[FIRST] - one.by_policy[SECOND] for one in episodes]
    wins, losses = sum(margin > 0 for margin in margins), sum(margin < 0 for margin in margins)
    return Games(first=first, second=second, wins=wins, draws=len(margins) - wins - losses, losses=losses)


def ratings(players: Sequence[str], games: Sequence[Games]) -> list[Rating]:
    """Return the ratings of the players, highest first."""
    points = [[0.0] * len(players) for _ in players]
    for one in games:
        first, second = players.index(one.first), players.index(one.second)
        points[first][second] += one.points[0]
        points[second][first] += one.points[1]
    return rate(players, points)


def tables(rated: Sequence[Rating], games: Sequence[Games]) -> str:
    """Return the ratings and the results of all pairs as two Markdown tables."""
    lines = ["| policy | Elo rating | points | games |", "|---|---|---|---|"]
    lines += [f"| {one.player} | {shown(one.rating)} | {one.points:g} | {one.rating.n} |" for one in rated]
    lines += [
        "",
        "| first seat | second seat | wins of the first | draws | wins of the second |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {one.first} | {one.second} | {one.wins} | {one.draws} | {one.losses} |" for one in games]
    return "\n".join(lines)


@click.command()
@click.argument("policies", nargs=-1, required=True)
@click.option("--recipe", type=RecipeName(), default=Path("pennies"), show_default=True, help="Game for two policies.")
@SET
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/arena"), show_default=True)
@JSON
def main(policies: Sequence[str], recipe: Path, overrides: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Let POLICIES (folders, runs, or names of policies) play against each other, and rate them."""
    if len(set(policies)) < max(len(policies), 2):
        raise ConfigError(f"an arena needs at least two different policies, not {', '.join(policies)}", "name more")
    game = load_recipe(recipe, list(overrides))
    folders = {name: PolicyOrRun().convert(name, None, None) for name in policies}
    games: list[Games] = []
    for number, (first, second) in enumerate(permutations(policies, 2)):
        pair = pair_recipe(game, folders[first], folders[second])
        episodes = evaluated(pair, folders[first], folder / f"pair-{number}")
        games.append(counted(first, second, episodes))
        say(f"{first} against {second}: {games[-1].wins} to {games[-1].losses}", err=True)
    rated = ratings(policies, games)
    say(json.dumps(msgspec.to_builtins({"ratings": rated, "games": games})) if as_json else tables(rated, games))


if __name__ == "__main__":
    main()
