"""Text form of the policy versions of a record's tokens in the ledger's tables: `[4, 5, 9]`, ascending, distinct."""

import json
from collections.abc import Iterable


def version_list(versions: Iterable[int]) -> str | None:
    """Return the text of these versions; None if there are none."""
    distinct = sorted(set(versions))
    return str(distinct) if distinct else None  # also JSON


def read_versions(text: str | None) -> list[int]:
    """Return the versions of a text that `version_list` wrote."""
    return [] if text is None else json.loads(text)
