"""Check that the run's ports on the loopback address are free."""

import socket
from collections.abc import Iterator

from quartet.doctor.base import Doctor, Finding, Place, lacks, ok

HOST = "127.0.0.1"


class Ports(Doctor):
    """Check that the run's ports on the loopback address are free."""

    before_training = True

    def examine(self, place: Place) -> Iterator[Finding]:
        runtime = place.recipe.runtime if place.recipe else None
        settings = {"runtime.engine_port": runtime.engine_port, "runtime.env_port": runtime.env_port} if runtime else {}
        for setting, port in (settings or {"any": 0}).items():
            what = f"{setting} = {port}" if port else f"a free port on {HOST}"
            try:
                with socket.create_server((HOST, port)):
                    yield ok(what)
            except OSError as error:
                yield lacks(
                    f"{what}: {error.strerror}",
                    f"set {setting} = 0 to take a free one" if port else "check the loopback interface with `ip addr`",
                )
