"""End a run whose newest rollouts all failed with the same error, probably a bug in the environment or the agent
loop."""

from shlex import quote

from quartet.config import Recipe
from quartet.errors import RepeatedErrorError
from quartet.files.disk import raise_if_low
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.rows import RepeatedError


def raise_if_repeated(recipe: Recipe, ledger: Ledger) -> None:
    """Raise `RepeatedErrorError` and request a stop if the newest `Recipe.most_identical_errors` rollouts failed with
    the same error. Raise `SetupError` instead if the disk of the run is full."""
    most = recipe.most_identical_errors
    repeated = ledger.trajectories.identical_errors(most)
    if repeated is None or repeated.count < most:
        return
    raise_if_low(ledger.run_dir, recipe.disk.min_free_megabytes)
    reason = f"{most} rollouts in a row ended as {repeated.status} with the same error: {repeated.error}"
    ledger.request_stop(reason)
    raise RepeatedErrorError(
        f"{reason}\n{_traceback(ledger, repeated)}".rstrip(),
        f"fix it and continue with --resume; `quartet view {quote(str(ledger.run_dir))}` shows rollout "
        f"{repeated.rollout_id}",
    )


def _traceback(ledger: Ledger, repeated: RepeatedError) -> str:
    """Return the traceback of the newest failure; empty if it has no traceback or its record was deleted."""
    try:
        return ledger.store.load(repeated.blob).traceback
    except DamagedBlobError:
        return ""
