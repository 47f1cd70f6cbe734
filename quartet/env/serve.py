"""Serve an environment without a run, to clients of OpenEnv."""

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping

from quartet import config
from quartet.access.place import Place
from quartet.env import make_pool, suite_families
from quartet.env.deadlines import Deadlines
from quartet.env.host import EnvHost
from quartet.env.quotas import Quotas
from quartet.errors import ConfigError
from quartet.terminal.say import say


def serve_environment(
    env: config.Env, host: str, port: int, token_variable: str | None, quotas: Mapping[str, int]
) -> None:
    """Serve until Ctrl-C or SIGTERM, and print the address, and the header with the token unless it is the user's.

    `quotas` are the numbers of sessions of further tokens, by the environment variables that hold them. Raise
    `ConfigError` for an unknown environment or family, or an empty variable; `SetupError` if the address cannot be
    used.
    """
    token = _token_in(token_variable) if token_variable else secrets.token_urlsafe(32)
    limits = {_token_in(variable): sessions for variable, sessions in quotas.items()}
    if len(limits) < len(quotas) or token in limits:
        raise ConfigError("two clients have the same token", "give each of them its own, or a common quota")
    shown = "" if token_variable else f"\nAuthorization: Bearer {token}"
    asyncio.run(_serve(env, Place(host), port, token, Quotas(limits), shown))


def _token_in(variable: str) -> str:
    """Return the value of an environment variable. Raise `ConfigError` if it is empty."""
    if token := os.environ.get(variable, ""):
        return token
    raise ConfigError(f"the environment variable {variable} is empty or not set", "put the token into it")


async def _serve(env: config.Env, place: Place, port: int, token: str, quotas: Quotas, shown: str) -> None:
    """Serve until a signal. `shown` is printed after the address."""
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
        families=suite_families(env),
        quotas=quotas,
    )
    try:
        await server.start(port)
        say(f"{server.url}{shown}")
        await stop.wait()
    finally:
        await server.stop()
