"""Token of a run: a secret in its folder that authenticates the run's programs to its servers."""

import fcntl
import os
import secrets
from pathlib import Path

FILE = "token"
"""File in the run's folder, readable by its owner only."""


def run_token(run_dir: Path) -> str:
    """Return the run's token; create it on the first call."""
    descriptor = os.open(run_dir / FILE, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        token = file.read()
        if not token:
            token = secrets.token_urlsafe(32)
            file.write(token)
        return token


def forget_token(run_dir: Path) -> None:
    """Delete the token of a run that has ended, because the run's folder may be copied or shared."""
    (run_dir / FILE).unlink(missing_ok=True)


def bearer(token: str) -> dict[str, str]:
    """Return the headers of a request with this token; no headers if the token is empty."""
    return {"Authorization": f"Bearer {token}"} if token else {}
