"""Main program of a child process with one session of an environment.

It reads a `Setup` and then requests of the environment protocol from its standard input, and writes a `Started` and
then one answer per request to its standard output.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from quartet import config
from quartet.env.child_streams import converse, limit_memory, read_frame, write_frame
from quartet.env.deadlines import Deadlines
from quartet.env.guarded import GuardedPool
from quartet.env.session import HostedSession, RefusedError
from quartet.fault import fault_of
from quartet.registry import build, import_plugins

TIMEOUT_SHARE = 0.9
"""Share of the time limit after which the child itself ends a call, since only it knows the place in the code."""


class Setup(Struct, frozen=True, kw_only=True):
    """The environment whose session the child runs."""

    env: dict[str, Any]
    """The table [env] of the recipe, with `module:Class` as name."""
    plugins: list[str] = []
    """Modules that register parts which the environment uses, such as rewards."""


class Started(Struct, frozen=True, kw_only=True):
    """The first answer of a child."""

    error: str = ""
    """Reason why the environment or its session cannot be made; the child then ends."""


def run(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until the parent closes the stream."""
    setup = msgspec.json.decode(read_frame(requests), type=Setup)
    env = config.Env.model_validate(setup.env)
    limit_memory(env.session_memory_megabytes)
    asyncio.run(_serve(env, setup.plugins, requests, answers))


async def _serve(env: config.Env, plugins: Sequence[str], requests: BinaryIO, answers: BinaryIO) -> None:
    """Make the session and answer requests. Tasks of the session go on between two requests."""
    try:
        import_plugins(plugins)
        pool = GuardedPool(build(env).pool(env))
        session = HostedSession(pool, _limits(env))
        await session.ready()
    except RefusedError as refusal:
        write_frame(answers, msgspec.json.encode(Started(error=str(refusal))))
        return
    except Exception as error:  # noqa: BLE001  (the module may be the user's)
        write_frame(answers, msgspec.json.encode(Started(error=fault_of(error).summary)))
        return
    write_frame(answers, msgspec.json.encode(Started()))
    while request := await asyncio.to_thread(read_frame, requests):
        answer = await session.answer(request.decode())
        write_frame(answers, (answer or "").encode())
    await session.close()
    await pool.close()


def _limits(env: config.Env) -> Deadlines:
    """Return the limits within which the child itself ends a call."""
    limits = Deadlines.of(env)
    return Deadlines(
        step=TIMEOUT_SHARE * limits.step, reset=TIMEOUT_SHARE * limits.reset, start=TIMEOUT_SHARE * limits.start
    )


if __name__ == "__main__":
    converse(run)
