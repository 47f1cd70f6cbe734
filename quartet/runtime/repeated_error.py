"""Ends a run whose rollouts all fail with the same error: a fault in the code of its environment or agent loop."""

from quartet.config import Recipe
from quartet.errors import RepeatedErrorError
from quartet.ledger import Ledger
from quartet.ledger.blobs import DamagedBlobError
from quartet.ledger.rows import RepeatedError


def raise_if_repeated(recipe: Recipe, ledger: Ledger) -> None:
    """Raise `RepeatedErrorError`, and request the stop, when the newest `Recipe.most_identical_errors` rollouts failed
    with the same error."""
    most = recipe.most_identical_errors
    repeated = ledger.identical_errors(most)
    if repeated is None or repeated.count < most:
        return
    reason = f"{most} rollouts in a row ended as {repeated.status} with the same error: {repeated.error}"
    ledger.request_stop(reason)
    raise RepeatedErrorError(
        f"{reason}\n{_traceback(ledger, repeated)}".rstrip(),
        f"mend it and go on with --resume; `quartet view {ledger.run_dir}` shows rollout {repeated.rollout_id}",
    )


def _traceback(ledger: Ledger, repeated: RepeatedError) -> str:
    """Of the newest of them; empty where no code raised it, or its record is gone."""
    try:
        return ledger.store.load(repeated.blob).traceback
    except DamagedBlobError:
        return ""
