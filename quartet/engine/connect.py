"""The run's engines as one for each policy: found through the ledger, behind a router, also when there is only one to
go back to."""

from functools import partial

from quartet.access.token import run_token
from quartet.config import Recipe
from quartet.engine.http import HttpEngine
from quartet.engine.paths import served_at
from quartet.engine.router import Router
from quartet.ledger import Ledger

PATIENCE_SECONDS = 1.0
"""How long an engine may be out of reach before the router looks for another one, or for the same one come back."""
LEASE_SHARE = 0.8
"""Of `rollout.lease_seconds`: a lease is renewed when a fifth of it is over, so this much is left when a response is
asked for. An engine that is silent or stays away for so long is noticed before the lease would be lost."""


def connect(recipe: Recipe, ledger: Ledger) -> Router:
    """A client of what all engines of the run serve of the ledger's policy; close it."""
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
