"""Serve an environment without a run, to clients of OpenEnv."""

import asyncio
import os
import secrets
import signal

from quartet import config
from quartet.access.place import Place
from quartet.env import make_pool, suite_families
from quartet.env.deadlines import Deadlines
from quartet.env.host import EnvHost
from quartet.errors import ConfigError
from quartet.terminal.say import say


def serve_environment(env: config.Env, host: str, port: int, token_variable: str | None) -> None:
    """Serve until Ctrl-C or SIGTERM, and print the address and the token.

    Raise `ConfigError` for an unknown environment or family, or an empty variable; `SetupError` if the address cannot
    be used.
    """
    token = os.environ.get(token_variable, "") if token_variable else secrets.token_urlsafe(32)
    if not token:
        raise ConfigError(f"the environment variable {token_variable} is empty or not set", "put the token into it")
    asyncio.run(_serve(env, Place(host), port, token))


async def _serve(env: config.Env, place: Place, port: int, token: str) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    server = EnvHost(
        make_pool(env),
        name=env.name,
        capacity=env.sessions,
        token=token,
        deadlines=Deadlines.of(env),
        place=place,
        first_family=suite_families(env)[0],
    )
    try:
        await server.start(port)
        say(f"{server.url}\nAuthorization: Bearer {token}")
        await stop.wait()
    finally:
        await server.stop()
