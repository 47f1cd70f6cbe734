"""Addresses that the pages of a browser may reach: those of its tasks, and none else of this machine or a network."""

from collections.abc import Iterable
from urllib.parse import SplitResult, unquote, urlsplit

from quartet.errors import ConfigError

ALL = "*"
BLOCKED = "MAP * ~NOTFOUND"
"""Rule for all hosts that no rule before it names; it covers IP addresses and all kinds of requests."""
DEFAULT_PORTS = (80, 443)
INNER_SCHEMES = ("about", "blob", "chrome-error", "data", "")
"""Schemes of pages that come from no other address."""


class Reach:
    """Hosts with their ports, and folders of files."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Allow addresses: URLs, or hosts with or without a port; `*` allows all. A file allows its folder.

        Raise `ConfigError` for an address whose port is no number.
        """
        split = [_split(one) for one in addresses]
        self._all = any(one.netloc == ALL for one in split)
        self._folders = tuple(unquote(one.path).rpartition("/")[0] + "/" for one in split if one.scheme == "file")
        self._hosts = [
            f"{one.netloc.rpartition('@')[2].removesuffix(f':{one.port}')}:{port}"
            for one in split
            if one.scheme != "file" and one.netloc not in ("", ALL)
            for port in ([one.port] if one.port else DEFAULT_PORTS)
        ]

    def flags(self) -> list[str]:
        """Return the arguments of Chromium that block all other hosts."""
        if self._all:
            return []
        rules = [*(f"MAP {host} {host}" for host in self._hosts), BLOCKED]
        return [f"--host-resolver-rules={','.join(rules)}"]

    def refuses(self, url: str) -> bool:
        """Return whether a page may not be shown: a file of another folder, or a page of the browser itself."""
        split = urlsplit(url)
        if split.scheme == "file":
            return ".." in split.path or not unquote(split.path).startswith(self._folders)
        return split.scheme not in ("http", "https", *INNER_SCHEMES)


def _split(address: str) -> SplitResult:
    split = urlsplit(address if "//" in address else f"//{address}")
    try:
        _ = split.port
    except ValueError as error:
        raise ConfigError(
            f"{address!r} is no address that a page can reach: {error}",
            "name a host, a host with a port such as 127.0.0.1:8000, a URL, or * for all, in env.reachable",
        ) from error
    return split
