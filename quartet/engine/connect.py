"""Clients of a run's engines for one policy, behind a router. The engines' addresses are in the ledger.

A run with a single engine has a router too, which finds the engine again after a restart.
"""

from functools import partial

from quartet.access.place import client_tls
from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine.http import HttpEngine
from quartet.engine.paths import served_at
from quartet.engine.router import Router
from quartet.ledger import Ledger
from quartet.registry import build

TIMEOUT_SECONDS = 1.0
"""Time in seconds for which an engine may be unreachable before the router tries another engine, or waits if no other
engine is up."""
LEASE_SHARE = 0.8
"""Share of `rollout.lease_seconds` after which a silent or absent engine is an error. A lease is renewed once a fifth
of its time is over. So at least this share of the lease remains when a request begins, and the error is raised before
the lease ends."""


class EngineClients:
    """Clients of the run's engines for one policy, behind a router that follows the members of the run."""

    def __init__(self, recipe: Recipe, ledger: Ledger) -> None:
        self._recipe, self._ledger = recipe, ledger
        self._seconds = LEASE_SHARE * recipe.rollout.lease_seconds
        self._token, self._tls = run_token(ledger.run_dir), client_tls(recipe.runtime.tls.trusted)
        engines = {name: self._client(name) for name in recipe.engine_modules}
        self.router = Router(engines, dispatch=build(recipe.rollout.dispatch), deadline_seconds=self._seconds)

    async def follow_members(self) -> None:
        """Route over the engines of the recipe and those that have joined the run and not left it."""
        joined = (member.module for member in self._ledger.modules.members("engine"))
        await self.router.follow({*self._recipe.engine_modules, *joined}, self._client)

    def _client(self, name: str) -> HttpEngine:
        return HttpEngine(
            partial(_url, self._ledger, name),
            token=self._token,
            deadline_seconds=TIMEOUT_SECONDS,
            silence_seconds=self._seconds,
            model=self._ledger.policy,
            tls=self._tls,
        )


def _url(ledger: Ledger, module: str) -> str | None:
    url = ledger.modules.url(module)
    return url and url + served_at(ledger.policy, ledger.trained[0])
