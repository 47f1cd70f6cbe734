"""A run's folder may come from anywhere: it must not decide where a database password goes."""

import json
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from quartet.config import Ledger as LedgerSection
from quartet.errors import LedgerError, SetupError
from quartet.files.ledger_files import LOCATION_FILE
from quartet.ledger import Ledger
from quartet.ledger.database import find_database, view_database
from quartet.ledger.database.location import TRUSTED, trust_server

SECRET = "the-users-password"


class GreedyServer:
    """Speaks enough of PostgreSQL's protocol to ask for a password in clear text, and keeps it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self._converse(client)

    def _converse(self, client: socket.socket) -> None:
        while True:
            head = client.recv(8)
            if len(head) < 8:
                return
            length, code = struct.unpack("!II", head)
            client.recv(length - 8) if length > 8 else b""
            if code in (80877103, 80877104):  # encryption by TLS or GSSAPI
                client.sendall(b"N")
                continue
            client.sendall(b"R" + struct.pack("!II", 8, 3))  # AuthenticationCleartextPassword
            self.received.append(client.recv(1024))
            return

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def server(monkeypatch) -> Iterator[GreedyServer]:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    for name in ("PGHOST", "PGPORT", TRUSTED):
        monkeypatch.delenv(name, raising=False)
    greedy = GreedyServer()
    yield greedy
    greedy.close()


def foreign_run(folder, port: int, **changes: str):
    where = {"url": f"postgresql://user@127.0.0.1:{port}/data", "schema": "quartet_run_01234567"} | changes
    (folder / LOCATION_FILE).write_text(json.dumps(where))
    return folder


def test_a_new_ledger_for_a_copied_recipe_gets_no_password(server, tmp_path):
    """`quartet eval COPIED_RUN` makes one where the run's own recipe says."""
    with pytest.raises(SetupError, match="asks for a password"):
        Ledger.create(tmp_path, url=f"postgresql://user@127.0.0.1:{server.port}/data")
    assert SECRET.encode() not in b"".join(server.received)


@pytest.mark.parametrize("opens", [Ledger.open, Ledger.view, lambda run: find_database(run).drop()])
def test_a_copied_run_gets_no_password(server, tmp_path, opens):
    run = foreign_run(tmp_path, server.port)
    with pytest.raises(SetupError, match=r"asks for a password(.|\n)*PGHOST=127\.0\.0\.1"):
        opens(run)
    assert SECRET.encode() not in b"".join(server.received)


def test_the_user_may_name_the_server_by_the_environment(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", str(server.port))
    with pytest.raises(Exception, match="cannot reach"):  # it says nothing more once it has the password
        view_database(foreign_run(tmp_path, server.port)).check()
    assert SECRET.encode() in server.received[0]


def test_the_user_may_name_the_server_by_a_recipe(server, tmp_path, monkeypatch):
    monkeypatch.setenv(TRUSTED, "")
    trust_server(f"postgresql://user@127.0.0.1:{server.port}/data")
    with pytest.raises(Exception, match="cannot reach"):
        view_database(foreign_run(tmp_path, server.port)).check()
    assert SECRET.encode() in server.received[0]


def test_the_same_host_at_another_port_is_another_server(server, tmp_path, monkeypatch):
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    with pytest.raises(SetupError):
        view_database(foreign_run(tmp_path, server.port)).check()
    assert SECRET.encode() not in b"".join(server.received)


def test_an_entry_of_the_password_file_names_its_server(server, tmp_path, monkeypatch):
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"127.0.0.1:{server.port}:*:user:from-the-file\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    with pytest.raises(Exception, match="cannot reach"):
        view_database(foreign_run(tmp_path, server.port)).check()
    assert b"from-the-file" in server.received[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "postgresql://user@trusted.example/data?hostaddr=127.0.0.1"},
        {"url": "postgresql://user@trusted.example/data?service=other"},
        {"url": "postgresql://user@trusted.example/data?gssdelegation=1"},
        {"url": "mysql://user@trusted.example/data"},
        {"schema": "public"},
        {"schema": "quartet_a -c log_statement=all"},
        {"more": "fields"},
    ],
)
def test_a_file_that_no_quartet_wrote_is_refused_before_anything_is_sent(server, tmp_path, changes):
    run = foreign_run(tmp_path, server.port, **changes)
    for opens in (find_database, view_database):
        with pytest.raises(LedgerError, match=r"ledger\.json"):
            opens(run)
    assert not server.received


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_an_error_in_words(tmp_path, content):
    (tmp_path / LOCATION_FILE).write_bytes(content)
    with pytest.raises(LedgerError, match=r"ledger\.json"):
        find_database(tmp_path)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h/d", "postgresql://u@h/d?password=secret"])
def test_a_recipe_with_a_password_is_refused(url):
    with pytest.raises(ValueError, match="PGPASSWORD"):
        LedgerSection(url=url)
