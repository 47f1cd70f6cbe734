"""`quartet view` as a process."""

import signal
import socket
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner

from quartet.cli.view import command
from quartet.errors import ConfigError, SetupError


def view(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "quartet", "view", *arguments], stdout=subprocess.PIPE, text=True)


def test_it_prints_an_address_and_ends_with_sigterm(run_dir):
    process = view(str(run_dir), "--port", "0")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    assert httpx.get(address, follow_redirects=True).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) in (0, -signal.SIGTERM)


def test_on_other_addresses_it_asks_for_a_token_that_it_made_up(run_dir):
    process = view(str(run_dir), "--port", "0", "--host", "0.0.0.0")
    assert process.stdout is not None
    address, _, token = process.stdout.readline().strip().partition("?token=")
    port = address.rstrip("/").rpartition(":")[2]
    assert len(token) > 30
    assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 401
    with httpx.Client(follow_redirects=True) as client:
        assert client.get(f"http://127.0.0.1:{port}/?token={token}").status_code == 200
    process.terminate()
    process.wait(timeout=30)


def test_a_taken_port_is_named(run_dir):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(SetupError, match="cannot listen"):
        CliRunner().invoke(command, [str(run_dir), "--port", str(other.getsockname()[1])], catch_exceptions=False)


def test_an_empty_token_is_refused(run_dir):
    with pytest.raises(ConfigError, match="allow access without one"):
        CliRunner().invoke(command, [str(run_dir), "--token", ""], catch_exceptions=False)
