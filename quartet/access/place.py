"""Address on which a server of a run listens, and TLS between the run's modules."""

import os
import socket
import ssl
from typing import NamedTuple

from quartet.access.rules import is_loopback
from quartet.errors import SetupError

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = ("0.0.0.0", "::")
"""Hosts that mean all addresses of this machine."""
HOST_NAME = "QUARTET_HOST_NAME"
"""Environment variable with the name at which other machines find this one; by default it is the host name."""


class Place(NamedTuple):
    """Address of this machine on which a server listens; with `tls`, it serves HTTPS."""

    host: str = LOOPBACK
    tls: ssl.SSLContext | None = None

    @property
    def is_local(self) -> bool:
        """True if only programs of this machine can connect."""
        return is_loopback(self.host)

    def url(self, port: int) -> str:
        """Return the URL at which other modules find the server."""
        own_name = os.environ.get(HOST_NAME) or socket.gethostname()
        name = own_name if self.host in EVERY_ADDRESS else self.host
        return f"{'https' if self.tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"


THIS_MACHINE = Place()


def server_tls(certificate: str, key: str) -> ssl.SSLContext | None:
    """Return the TLS context of a server, or None without a certificate. Raises `SetupError` for unusable files."""
    if not certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # `SSLError` is one
        raise _unusable(f"{certificate} with the key {key}", error) from error
    return context


def client_tls(authority: str) -> ssl.SSLContext | None:
    """Return the TLS context of a client that trusts only the certificates in the file `authority`, and those that
    they sign. Without a file, return None. Raises `SetupError` for an unusable file."""
    if not authority:
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise _unusable(authority, error) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a server's own certificate suffices
    return context


def _unusable(what: str, error: OSError) -> SetupError:
    return SetupError(
        f"cannot use the TLS certificate {what}: {error.strerror or error}",
        "give runtime.tls.certificate, key and authority as PEM files that this user can read",
    )
