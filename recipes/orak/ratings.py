"""Ratings of players from their games with each other, by the model of Bradley and Terry (1952)."""

from collections.abc import Sequence
from math import log

import msgspec
import numpy as np

from quartet.report.comparison.intervals import Interval

ELO = 400 / log(10)
"""Elo points per unit of log-odds."""
PRIOR_DRAWS = 1.0
"""Draws that are added to each pair that has played, so that a player without a defeat has a finite rating."""
Z_975 = 1.959964
TOLERANCE, MAX_ITERATIONS = 1e-10, 100_000
Matrix = Sequence[Sequence[float]]


class Rating(msgspec.Struct, frozen=True, kw_only=True):
    """Rating of one player, in Elo points above the mean of all players."""

    player: str
    rating: Interval
    points: float
    """Wins, and half of the draws."""


def rate(players: Sequence[str], points: Matrix) -> list[Rating]:
    """Return the ratings, highest first, with 95 % intervals.

    `points[i][j]` are the points of player `i` against `j`: wins, and half of the draws. The intervals are from the
    Fisher information at the estimate, in which a draw counts as half a win, so that many draws make them too wide.
    """
    won = np.array(points, dtype=float)
    played = won + won.T
    pairs = (played > 0) & ~np.eye(len(players), dtype=bool)
    strengths = _strengths(np.where(pairs, won + PRIOR_DRAWS / 2, 0.0))
    ratings = ELO * np.log(strengths)
    errors = ELO * np.sqrt(np.diag(_covariance(np.where(pairs, played + PRIOR_DRAWS, 0.0), strengths)))
    found = [
        Rating(player=player, rating=_interval(float(rating), float(error), int(games)), points=float(total))
        for player, rating, error, games, total in zip(
            players, ratings, errors, played.sum(axis=1), won.sum(axis=1), strict=True
        )
    ]
    return sorted(found, key=lambda one: -one.rating.mean)


def _strengths(won: np.ndarray) -> np.ndarray:
    """Return the strengths of the greatest likelihood, whose geometric mean is 1.

    Zermelo's iteration: each strength is the player's points over the sum of games / (own + other strength).
    """
    played, strengths = won + won.T, np.ones(len(won))
    for _ in range(MAX_ITERATIONS):
        sums = strengths[:, None] + strengths[None, :]
        new = won.sum(axis=1) / (played / sums).sum(axis=1)
        new /= np.exp(np.log(new).mean())
        if np.abs(new / strengths - 1).max() < TOLERANCE:
            break
        strengths = new
    return strengths


def _covariance(played: np.ndarray, strengths: np.ndarray) -> np.ndarray:
    """Return the covariance of the log-strengths, whose sum is 0: the pseudo-inverse of the Fisher information."""
    sums = strengths[:, None] + strengths[None, :]
    information = -played * strengths[:, None] * strengths[None, :] / sums**2
    np.fill_diagonal(information, 0.0)
    np.fill_diagonal(information, -information.sum(axis=1))
    return np.linalg.pinv(information)


def _interval(rating: float, error: float, games: int) -> Interval:
    half = Z_975 * error
    return Interval(mean=rating, low=rating - half, high=rating + half, n=games)
