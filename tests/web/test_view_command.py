"""`quartet view` as a process."""

import signal
import socket
import subprocess
import sys
import time
import webbrowser

import httpx
import pytest
from click.testing import CliRunner

from quartet.cli.view import command
from quartet.errors import ConfigError, SetupError
from quartet.runtime.dashboard import dashboard


def view(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "quartet", "view", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_it_prints_an_address_and_ends_with_sigterm(run_dir):
    process = view(str(run_dir), "--port", "0")
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:")
    assert httpx.get(address, follow_redirects=True).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_ctrl_c_ends_it_without_an_error(run_dir):
    process = view(str(run_dir), "--port", "0")
    assert process.stdout is not None
    assert httpx.get(process.stdout.readline().strip()).status_code in (200, 303, 307)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert errors == "stop with Ctrl-C\n"
    assert process.returncode == 0


@pytest.mark.slow
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
    process.wait(timeout=120)


@pytest.mark.slow
def test_the_address_has_the_token_as_an_address_needs_it(run_dir):
    process = view(str(run_dir), "--port", "0", "--token", 'a+b&c#d%20 "ключ";')
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with httpx.Client(follow_redirects=True) as client:
        assert client.get(address).status_code == 200
        assert client.get(address.partition("?")[0]).status_code == 200  # by the cookie
    process.terminate()
    process.wait(timeout=120)


def test_a_taken_port_is_named(run_dir):
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(SetupError, match="cannot listen"):
        CliRunner().invoke(command, [str(run_dir), "--port", str(other.getsockname()[1])], catch_exceptions=False)


def test_an_empty_token_is_refused(run_dir):
    with pytest.raises(ConfigError, match="allow access without one"):
        CliRunner().invoke(command, [str(run_dir), "--token", ""], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["address", "browser"])
def test_a_run_in_training_serves_its_dashboard_until_it_ends(run_dir, monkeypatch, view):
    notes, opened = list[str](), list[str]()
    monkeypatch.setattr(webbrowser, "open", opened.append)
    with dashboard(run_dir, view, notes.append):
        while not notes:
            time.sleep(0.05)
        address = notes[0].removeprefix("dashboard  ")
        assert httpx.get(address, follow_redirects=True).status_code == 200
        while view == "browser" and not opened:
            time.sleep(0.05)
    assert opened == ([address] if view == "browser" else [])
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_a_dashboard_that_does_not_start_stops_nothing(tmp_path):
    notes = list[str]()
    with dashboard(tmp_path / "gone", "address", notes.append):
        while not notes:
            time.sleep(0.05)
    assert "did not start" in notes[0]


def test_a_run_that_did_not_ask_for_a_dashboard_has_none(tmp_path):
    with dashboard(tmp_path / "gone", "none", lambda text: pytest.fail(text)):
        pass
