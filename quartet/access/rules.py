"""Rules for requests to Quartet's HTTP servers.

Standard library only: vLLM's server process imports this file too.
"""

import hmac
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

BODY_METHODS = ("POST", "PUT", "PATCH")


class Refusal(NamedTuple):
    """Response to a rejected request: HTTP status and message."""

    status: int
    message: str


def is_loopback(host: str) -> bool:
    """Return whether `host`, a name or an address, can be reached from this machine only."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(header: str) -> str:
    """Return the name in a Host header, without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0].lower()


def is_token(given: str, token: str) -> bool:
    """Compare two tokens in a time that does not depend on the position of the first difference."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def refuse_foreign_host(headers: Mapping[str, str]) -> Refusal | None:
    """Reject a Host header that does not name this machine.

    A web page whose domain was pointed at 127.0.0.1 (DNS rebinding) sends that domain in the header.
    """
    host = host_name(headers.get("host", ""))
    return None if is_loopback(host) else Refusal(403, f"this server is not {host!r}: use 127.0.0.1 or localhost")


def refuse_foreign_origin(headers: Mapping[str, str]) -> Refusal | None:
    """Reject a request that a browser sends for a page of another server."""
    origin = headers.get("origin")
    if origin is None:
        return None
    try:
        own = urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:  # an IPv6 address with unbalanced brackets
        own = False
    return None if own else Refusal(403, f"requests from pages of {origin!r} are refused")


def given_token(headers: Mapping[str, str]) -> str:
    """Return the token of a request's header `Authorization: Bearer TOKEN`; empty if it has none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def refuse_client(
    method: str, headers: Mapping[str, str], token: str, *, guests: Collection[str] = (), local: bool = True
) -> Refusal | None:
    """Reject all requests to a run's server except those of the run's own programs, and of `guests` with these tokens.

    A `local` server listens on this machine only, and rejects other names of it. `headers` is case-insensitive.
    """
    if refusal := (refuse_foreign_host(headers) if local else None) or refuse_foreign_origin(headers):
        return refusal
    given = given_token(headers)
    if not given or not any(is_token(given, known) for known in (token, *guests)):
        return Refusal(401, "send the run's token, from the file `token` of its folder: `Authorization: Bearer TOKEN`")
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method in BODY_METHODS and content_type != "application/json":
        return Refusal(415, f"send `Content-Type: application/json`, not {content_type!r}")
    return None
