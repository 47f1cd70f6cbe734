"""A node: a network namespace with one address, connected to nothing but the hub. Needs root."""

import ctypes
import fcntl
import os
import struct
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quartet.errors import SetupError

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_DEVICE = "wire0"
_READY = b"ready\n"


def why_not() -> str:
    """Return why this machine cannot have nodes; empty if it can."""
    if not Path("/dev/net/tun").exists():
        return "no /dev/net/tun"
    done = subprocess.run(["unshare", "--net", "--uts", "ip", "link"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


class Node:
    """A network namespace whose host name is its address, so that servers announce an address that others reach.

    The namespace exists while its holder runs, a process that ends with this one because its input ends.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name, self.address = name, f"10.77.0.{number}"
        shell = f"hostname {self.address} && ip link set lo up && echo ready && exec cat"
        command = ["unshare", "--net", "--uts", "sh", "-c", shell]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != _READY:
            raise SetupError(f"cannot make the network namespace of {name}", f"needs root: {why_not()}")
        with ThreadPoolExecutor(1) as thread:  # the thread that enters the namespace ends with the block
            self.wire: int = thread.submit(self._open_wire).result()
        self._ip("address", "add", f"{self.address}/24", "dev", _DEVICE)
        self._ip("link", "set", _DEVICE, "up")

    @property
    def prefix(self) -> list[str]:
        """Words that run a command on this node."""
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--uts", "--"]

    def close(self) -> None:
        os.close(self.wire)
        self._holder.communicate()

    def _open_wire(self) -> int:
        """Enter the namespace with this thread, make its network device, and return the descriptor of its other end."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{self._holder.pid}/ns/net").open() as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        wire = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(wire, _TUNSETIFF, struct.pack("16sH14x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        return wire

    def _ip(self, *words: str) -> None:
        subprocess.run([*self.prefix, "ip", *words], check=True)


def on_all(nodes: Sequence[Node]) -> dict[bytes, Node]:
    """Return the nodes by their addresses, as packets have them."""
    return {bytes(map(int, node.address.split("."))): node for node in nodes}
