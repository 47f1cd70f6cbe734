"""Client of the run's engines for one policy: engines found through the ledger, behind a router.

The router also serves a single engine, to which it returns after a restart.
"""

from functools import partial

from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine.http import HttpEngine
from quartet.engine.paths import served_at
from quartet.engine.router import Router
from quartet.ledger import Ledger

PATIENCE_SECONDS = 1.0
"""Time for which an engine may be unreachable before the router tries another one, or waits for it to return."""
LEASE_SHARE = 0.8
"""Share of `rollout.lease_seconds` after which a silent or absent engine is an error. A lease is renewed when a fifth
of it is over, so at least this much is left at a request. The error therefore comes before the lease is lost."""


def connect(recipe: Recipe, ledger: Ledger) -> Router:
    """Return a client of all engines that serve the ledger's policy; the caller closes it."""
    seconds = LEASE_SHARE * recipe.rollout.lease_seconds
    token = run_token(ledger.run_dir)
    engines = {
        name: HttpEngine(
            partial(_url, ledger, name),
            token=token,
            deadline_seconds=PATIENCE_SECONDS,
            silence_seconds=seconds,
            model=ledger.policy,
        )
        for name in recipe.engine_modules
    }
    return Router(engines, deadline_seconds=seconds)


def _url(ledger: Ledger, module: str) -> str | None:
    url = ledger.module_url(module)
    return url and url + served_at(ledger.policy, ledger.trained[0])
