"""A private S3 server for tests: moto's server as a process of its own, with one bucket."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quartet.free_port import free_port

MISSING = [name for name in ("s3fs", "moto", "flask") if importlib.util.find_spec(name) is None]
needs_s3 = pytest.mark.skipif(bool(MISSING), reason=f"pip install s3fs 'moto[server]': {', '.join(MISSING)} is missing")
BUCKET = "runs"
START_SECONDS = 120.0


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a server, let the driver of this process find it, and return the URL of its bucket."""
    endpoint = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-c", "from moto.server import main; main()", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(endpoint, server)
        for name, value in {
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        _ask("PUT", f"{endpoint}/{BUCKET}")
        yield f"s3://{BUCKET}/of-tests"
    finally:
        server.kill()
        server.wait()


def _await(endpoint: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert server.poll() is None and time.monotonic() < deadline, f"no server at {endpoint}"
        try:
            return _ask("GET", f"{endpoint}/moto-api/")
        except urllib.error.URLError:
            time.sleep(0.1)


def _ask(method: str, url: str) -> None:
    os.environ["NO_PROXY"] = "127.0.0.1"
    urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=10).close()
