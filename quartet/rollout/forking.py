"""Forks of running rollouts: call the brancher after each call, and queue the children that it requests."""

from collections.abc import Sequence

from quartet.config import Recipe
from quartet.env import make_environment
from quartet.env.base import Env
from quartet.ledger import Ledger
from quartet.registry import build
from quartet.rollout.brancher.base import Brancher
from quartet.rollout.recorded_env import RecordedEnv
from quartet.types import Call, EpisodeState, RolloutLease


class Forking:
    """The recipe's brancher, and the ledger in which its forks are queued."""

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        self._brancher: Brancher = build(recipe.rollout.brancher)
        self._most_forks, self._ledger = recipe.rollout.brancher.max_forks_per_group, ledger
        self.may_fork = self._brancher.may_fork
        self._stores_states = self.may_fork and make_environment(recipe.env).snapshots

    def session(self, env: Env, parent: EpisodeState | None) -> Env:
        """Return the session for an agent loop, which begins in the `parent`'s state and can store its own state.

        Without a parent, and if the run stores no states, the result is `env` itself.
        """
        return RecordedEnv(env, parent) if parent or self._stores_states else env

    async def fork_before(self, lease: RolloutLease, session: Env, call: Call, so_far: Sequence[Call]) -> None:
        """Queue the children that fork just before `call`.

        Raises `LeaseLostError`, and the errors of the session when it stores its state.
        """
        count = self._brancher.forks(call, so_far) if so_far else 0
        if count <= 0 or self._ledger.forks.count(lease.group_id) >= self._most_forks:
            return
        state = await session.state() if isinstance(session, RecordedEnv) else None
        self._ledger.forks.add(lease, [*so_far, call], len(so_far) - 1, count, self._most_forks, state)
