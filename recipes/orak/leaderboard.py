"""Leaderboard: scores of policies in all games, from 0 to 100, with 95 % intervals.

    python -m recipes.orak.leaderboard orak-start runs/orak

Every policy plays the same held-out games, by the evaluation of `quartet eval`. Two players without a model play them
as well, for comparison.
"""

import json
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path

import click
import msgspec

from quartet.cli.eval import evaluation_name
from quartet.cli.parameters import JSON, SET, PolicyOrRun
from quartet.ledger.evaluations import EpisodeRewards
from quartet.recipe.file import load_recipe
from quartet.report.comparison.intervals import Interval, interval
from quartet.terminal.say import say

from .evaluated import evaluated
from .players import PLAYERS, episodes_of

RECIPE = Path(__file__).with_name("recipe.toml")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Line of the leaderboard."""

    policy: str
    games: dict[str, Interval]
    mean: Interval
    """Mean over the games; every game counts equally."""


def entry(policy: str, episodes: Sequence[EpisodeRewards]) -> Entry:
    """Return the line of a policy."""
    scores: dict[str, list[float]] = {}
    for episode in episodes:
        scores.setdefault(episode.family, []).extend(100 * reward for reward in episode.by_policy.values())
    games = {game: interval(of_game) for game, of_game in sorted(scores.items())}
    return Entry(policy=policy, games=games, mean=_mean(games))


def _mean(games: Mapping[str, Interval]) -> Interval:
    """Return the mean of independent means, and its interval."""
    count, episodes = len(games), sum(one.n for one in games.values())
    mean = sum(one.mean for one in games.values()) / count
    halves = [one.high - one.mean for one in games.values() if one.high is not None]
    if len(halves) < count:
        return Interval(mean=mean, low=None, high=None, n=episodes)
    half = sqrt(sum(half * half for half in halves)) / count
    return Interval(mean=mean, low=mean - half, high=mean + half, n=episodes)


def table(entries: Sequence[Entry]) -> str:
    """Return the leaderboard as a Markdown table, the highest mean first."""
    games = list(entries[0].games)
    lines = [f"| policy | {' | '.join(games)} | mean |", "|---" * (len(games) + 2) + "|"]
    for one in sorted(entries, key=lambda one: -one.mean.mean):
        cells = [*(one.games[game] for game in games), one.mean]
        lines.append(f"| {one.policy} | {' | '.join(map(shown, cells))} |")
    return "\n".join(lines)


def shown(value: Interval) -> str:
    """Format a mean with its interval."""
    if value.low is None or value.high is None:
        return f"{value.mean:.1f}"
    return f"{value.mean:.1f} ({value.low:.1f} to {value.high:.1f})"


@click.command()
@click.argument("policies", nargs=-1, required=True)
@SET
@click.option(
    "--how",
    type=click.Choice(["greedy", "sampled"]),
    default="sampled",
    show_default=True,
    help="Episodes that count: of the most likely tokens, or at the training temperature.",
)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/leaderboard"), show_default=True)
@JSON
def main(policies: Sequence[str], overrides: tuple[str, ...], how: str, folder: Path, as_json: bool) -> None:
    """Evaluate POLICIES (folders, runs, or names of policies) in all games of the recipe, and rank them."""
    recipe = load_recipe(RECIPE, list(overrides))
    entries = [entry(name, episodes_of(name, recipe)) for name in PLAYERS]
    for name in policies:
        policy = PolicyOrRun().convert(name, None, None)
        entries.append(entry(name, evaluated(recipe, policy, folder / evaluation_name(policy), how)))
        say(f"{name}: {shown(entries[-1].mean)}", err=True)
    say(json.dumps(msgspec.to_builtins(entries)) if as_json else table(entries))


if __name__ == "__main__":
    main()
