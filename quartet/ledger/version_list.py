"""Write and read lists of policy versions in columns of the ledger, such as `[4, 5, 9]`: distinct and ascending."""

import json
from collections.abc import Iterable


def version_list(versions: Iterable[int]) -> str | None:
    """Return the versions as text; None if there are none."""
    distinct = sorted(set(versions))
    return str(distinct) if distinct else None  # also JSON


def read_versions(text: str | None) -> list[int]:
    """Parse a text written by `version_list`."""
    return [] if text is None else json.loads(text)
