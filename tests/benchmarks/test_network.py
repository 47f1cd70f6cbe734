"""The network of nodes: its packets arrive, are cut, come late, and connections outlive it."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.network.hub import Hub
from benchmarks.network.node import Node, why_not

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(reason := why_not()), reason=f"no network namespaces: {reason}"),
]
ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("listens", flush=True)
client = server.accept()[0]
while data := client.recv(100):
    client.sendall(data)
"""
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 7000), timeout=60)
for line in sys.stdin:
    connection.sendall(line.encode())
    print(connection.recv(100).decode(), end="", flush=True)
"""


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made = [Node("client", 1), Node("server", 2)]
    yield made
    for node in made:
        node.close()


@contextmanager
def running(node: Node, code: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program on a node, and kill it at the end of the block: a failed test waits for no packet."""
    command = [*node.prefix, sys.executable, "-c", code, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def echoing(node: Node) -> Iterator[None]:
    """Run the server on a node; the block begins once it listens, since an earlier connection would be refused."""
    with running(node, ECHO) as server:
        assert server.stdout and server.stdout.readline() == b"listens\n"
        yield


def asked(client: subprocess.Popen[bytes]) -> float:
    """The seconds until an echo is back."""
    assert client.stdin and client.stdout
    began = time.monotonic()
    client.stdin.write(b"hello\n")
    client.stdin.flush()
    assert client.stdout.readline() == b"hello\n"
    return time.monotonic() - began


def test_a_connection_outlives_a_cut_and_is_late_on_a_bad_link(nodes: list[Node]) -> None:
    with Hub(nodes) as hub, echoing(nodes[1]), running(nodes[0], ASK, nodes[1].address) as client:
        asked(client)
        with hub.bad(["server"], latency_seconds=0.3, loss=0.0):
            assert asked(client) >= 0.3
        assert client.stdin and client.stdout
        with hub.cut("server"):
            client.stdin.write(b"later\n")
            client.stdin.flush()
            while hub.lost < 3:  # the kernel tries again meanwhile
                time.sleep(0.05)
        assert client.stdout.readline() == b"later\n", "the kernel sends it again"
