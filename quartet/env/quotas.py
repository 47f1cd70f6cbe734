"""Quotas of a shared environment host: the sessions that each of several tokens may have at once."""

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType


class Quotas:
    """Counter of the sessions of each token with a quota. Other tokens are limited by the host's capacity only."""

    def __init__(self, limits: Mapping[str, int] = MappingProxyType({})) -> None:
        """`limits` are the maximum numbers of sessions by token."""
        self._limits, self._taken = limits, Counter[str]()

    @property
    def tokens(self) -> Collection[str]:
        """Tokens that have a quota."""
        return self._limits.keys()

    def refusal(self, token: str) -> str:
        """Return why the token gets no further session; empty if it gets one."""
        limit = self._limits.get(token)
        return f"all {limit} sessions of this token are taken" if limit and self._taken[token] >= limit else ""

    def take(self, token: str) -> None:
        """Count a session of the token."""
        self._taken[token] += 1

    def free(self, token: str) -> None:
        """Stop counting a session that has ended."""
        self._taken[token] -= 1
