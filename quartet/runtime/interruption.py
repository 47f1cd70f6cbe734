"""End of a run by a signal of the user: Ctrl-C, or SIGTERM as `quartet stop` sends it."""

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType

from quartet.errors import CONTINUE, InterruptedByUser, LedgerUnreachableError
from quartet.ledger.database.answer_timeout import ANSWER_TIMEOUT

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupted_by(received: signal.Signals) -> InterruptedByUser:
    """Return the error of a run that a signal ended."""
    what = "stopped by the user" if received is signal.SIGINT else f"stopped by {received.name}"
    return InterruptedByUser(what, CONTINUE)


async def interruptible(work: Coroutine[None, None, None]) -> None:
    """Run `work` until it ends. At a signal cancel it, wait for its end, and raise `InterruptedByUser`.

    An exception from the signal's handler could be raised in any code, which might take it for a failure of its own.
    Cancelled work ends where it waits next, so a train step in progress is completed.
    """
    loop, task, received = asyncio.get_running_loop(), asyncio.create_task(work), list[signal.Signals]()

    def on_signal(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        ANSWER_TIMEOUT.stop()
        loop.call_soon_threadsafe(task.cancel)

    former = {name: signal.signal(name, on_signal) for name in SIGNALS}
    try:
        await task
    except (asyncio.CancelledError, LedgerUnreachableError):
        if received:
            raise interrupted_by(received[0]) from None
        raise
    finally:
        for name, handler in former.items():
            signal.signal(name, handler)
        ANSWER_TIMEOUT.resume()
