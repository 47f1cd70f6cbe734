"""Readiness of a guest, by what it shows: a screen at all, the window of a started program, a screen that is quiet."""

import asyncio

from quartet.env.desktop.objects import Window
from quartet.env.osworld.guest import Guest
from quartet.env.osworld.tree import windows_and_nodes
from quartet.errors import EnvError

PROBE_SECONDS = 0.3
"""Seconds between two probes of the screen. A picture costs a guest more than a local desktop."""
BOOT_PROBE_SECONDS = 0.5
"""Interval of requests to a guest that may still start."""
ANSWER_SECONDS = 15.0
"""Maximum wait for an answer of a guest that may still start."""


async def screen_size(guest: Guest, problems: list[str]) -> tuple[int, int]:
    """Return the size of the screen once the guest answers, which takes a while after a reboot. Problems until then are
    added to the list."""
    while True:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await guest.screen_size()
        except EnvError as error:
            problems.append(error.what)
        except TimeoutError:
            problems.append(f"the guest sent no answer for {ANSWER_SECONDS:g} s")
        await asyncio.sleep(BOOT_PROBE_SECONDS)


async def shown(guest: Guest) -> list[Window] | bytes:
    """Return the windows on the screen, or the picture of a guest without an accessibility tree."""
    tree = await guest.accessibility()
    return windows_and_nodes(tree)[0] if tree else await guest.screenshot()


async def wait_for_change(guest: Guest, before: list[Window] | bytes, seconds: float) -> None:
    """Wait until the guest shows something else than `before`, for at most `seconds`: a program may have no window."""
    end = asyncio.get_running_loop().time() + seconds
    while await shown(guest) == before:
        if asyncio.get_running_loop().time() >= end:
            break
        await asyncio.sleep(PROBE_SECONDS)


async def settled(guest: Guest, seconds: float) -> tuple[bytes, str]:
    """Return the picture and the accessibility tree once two pictures and the windows are equal to those before, or the
    last ones within the limit."""
    end = asyncio.get_running_loop().time() + seconds
    picture, tree = await guest.screenshot(), await guest.accessibility()
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(PROBE_SECONDS)
        before, windows = picture, windows_and_nodes(tree)[0]
        picture = await guest.screenshot()
        if picture == before:
            tree = await guest.accessibility()
            if windows_and_nodes(tree)[0] == windows:
                break
    else:  # the tree has to be of the last picture
        tree = await guest.accessibility()
    return picture, tree
