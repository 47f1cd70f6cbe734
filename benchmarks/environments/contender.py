"""The same episodes with another driver, as a program that needs nothing of Quartet: it runs in a Python of its own.

    PYTHON contender.py selenium|browsergym PAGES EPISODES

prints the episodes per second. Selenium has one browser per page, in threads; BrowserGym one process per page.
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

FAMILY = "click-test-2"


def selenium_env() -> Any:
    """Return Farama's environment on the system's Chromium."""
    os.environ.setdefault("MINIWOB_CHROME_BINARY", shutil.which("chromium") or "")
    os.environ.setdefault("MINIWOB_CHROMEDRIVER", shutil.which("chromedriver") or "")
    from miniwob.environment import MiniWoBEnvironment

    return MiniWoBEnvironment(subdomain=FAMILY, refresh_freq=1)


def selenium_episode(env: Any, seed: int) -> None:
    """Reset, and click the button `ONE`."""
    from miniwob.action import ActionTypes

    observation, _ = env.reset(seed=seed)
    button = next(one for one in observation["dom_elements"] if one["text"] == "ONE")
    env.step(env.create_action(ActionTypes.CLICK_ELEMENT, ref=button["ref"]))


def browsergym_env() -> Any:
    """Return BrowserGym's environment on the system's Chromium, which its second browser, for the chat, uses too.

    The variable MINIWOB_URL names the folder of pages.
    """
    import browsergym.miniwob  # noqa: F401  # pyright: ignore[reportMissingImports]  (registers its tasks)
    import gymnasium
    from playwright.sync_api import BrowserType

    launch, chromium = BrowserType.launch, shutil.which("chromium")
    BrowserType.launch = lambda self, **settings: launch(self, **{"executable_path": chromium, **settings})

    return gymnasium.make(f"browsergym/miniwob.{FAMILY}", headless=True)


def browsergym_episode(env: Any, seed: int) -> None:
    """Reset, and click the button `ONE` by its identifier."""
    observation, _ = env.reset(seed=seed)
    nodes = observation["axtree_object"]["nodes"]
    button = next(node for node in nodes if node.get("name", {}).get("value") == "ONE" and "browsergym_id" in node)
    env.step(f"click('{button['browsergym_id']}')")


DRIVERS: dict[str, tuple[Callable[[], Any], Callable[[Any, int], None]]] = {
    "selenium": (selenium_env, selenium_episode),
    "browsergym": (browsergym_env, browsergym_episode),
}


def play(driver: str, episodes: int) -> tuple[float, float]:
    """Play episodes in one page, after one to warm up. Return when the first began and when the last ended."""
    make, episode = DRIVERS[driver]
    env = make()
    episode(env, 0)
    began = time.time()
    for seed in range(episodes):
        episode(env, seed)
    ended = time.time()
    env.close()
    return began, ended


def main(driver: str, pages: int, episodes: int) -> float:
    """Return the episodes per second of all pages together."""
    each = max(episodes // pages, 1)
    spawn = multiprocessing.get_context("spawn")
    pool = ThreadPoolExecutor(pages) if driver == "selenium" else ProcessPoolExecutor(pages, spawn)
    with pool:
        futures: list[Future[tuple[float, float]]] = [pool.submit(play, driver, each) for _ in range(pages)]
        spans = [future.result() for future in futures]
    return sum(each / (ended - began) for began, ended in spans)


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])):.4f}\n")
