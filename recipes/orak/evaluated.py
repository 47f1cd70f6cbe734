"""Rewards of policies by the evaluation of `quartet eval`, shared by the leaderboard and the arena."""

from contextlib import closing
from pathlib import Path

from quartet.config import Recipe
from quartet.errors import SetupError
from quartet.ledger import Ledger
from quartet.ledger.database import has_database
from quartet.ledger.evaluations import EpisodeRewards
from quartet.runtime.run import evaluate_policy


def policy_folder(path: Path) -> Path:
    """Return the folder of a policy: the path itself, or the newest policy of a run."""
    if not has_database(path):
        return path
    with closing(Ledger.view(path)) as ledger:
        return Path(ledger.policies.latest().path)


def evaluated(recipe: Recipe, policy: Path, folder: Path, how: str = "sampled") -> list[EpisodeRewards]:
    """Evaluate a policy on the held-out tasks of a recipe into `folder`, and return the rewards of each episode of the
    kind `how` ("greedy" or "sampled").

    Raise `SetupError` if no episode has a result.
    """
    evaluate_policy(recipe, policy_folder(policy), folder, quiet=True)
    with closing(Ledger.view(folder)) as ledger:
        episodes = ledger.evaluations.rewards(f"eval/{how}")
    if not episodes:
        raise SetupError(f"no episode of {policy} has a result", f"read the logs in {folder}")
    return episodes
