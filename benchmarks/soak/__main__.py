"""Play many MiniWoB++ episodes while a page, the browser and the host are killed in turn. Report whether an episode was
lost, a process was left, the host did not stop, or memory grew.

    python -m benchmarks.soak --json                    # 20,000 episodes, a kill every 500
    python -m benchmarks.soak --episodes 300 --every 60 --calm 0

Memory is watched while `--calm` more episodes are played, in which nothing is killed. The browser fills its heaps and
caches in the first half of them, so growth is that of the second half.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

import click
import psutil

from benchmarks.soak.host import MEGABYTE, TOKEN, HostProcess
from benchmarks.soak.memory import Growth
from benchmarks.soak.play import SUITE, Played, play_all
from quartet import config
from quartet.env.client import RemoteEnvPool

EPISODES_PER_SAMPLE = 25


@click.command()
@click.option("--episodes", default=20_000, show_default=True)
@click.option("--every", default=500, show_default=True, help="Episodes between two kills.")
@click.option("--calm", default=10_000, show_default=True, help="Further episodes without a kill.")
@click.option("--sessions", default=4, show_default=True, help="Pages of the browser.")
@click.option("--json", "as_json", is_flag=True)
def main(episodes: int, every: int, calm: int, sessions: int, as_json: bool) -> None:
    """Soak the environment cluster; exit with 1 if a promise was broken, which `broken` then lists."""
    result = asyncio.run(soak(episodes, every, calm, sessions))
    click.echo(json.dumps(result) if as_json else "\n".join(f"{name:34} {value}" for name, value in result.items()))
    if result["broken"]:
        sys.exit(1)


async def soak(episodes: int, every: int, calm: int, sessions: int) -> dict[str, Any]:
    """Play the episodes, and return the results by name."""
    env = config.Env.model_validate(
        {"name": "miniwob", "suite": SUITE, "sessions": sessions, "screenshots": False, "step_timeout_seconds": 60.0}
    )
    host, started = HostProcess(env).start(), time.monotonic()
    growth = {"client": Growth(), "host": Growth(), "browser": Growth()}
    kills = {"page": 0, "browser": 0, "host": 0}
    pool = RemoteEnvPool(lambda: [host.url], sessions, token=TOKEN, request_timeout_seconds=60.0)

    def after_each(played: Played) -> None:
        ended = len(played.results)
        if ended % EPISODES_PER_SAMPLE == 0:
            growth["client"].add(ended, psutil.Process().memory_full_info().uss / MEGABYTE)
            for name, size in zip(("host", "browser"), host.megabytes(), strict=True):
                growth[name].add(ended, size)
        if ended % every == 0 and ended < episodes:
            _kill(host, list(kills)[ended // every % len(kills)], kills)

    try:
        played = await play_all(pool, episodes + calm, sessions, after_each)
    finally:
        await pool.close()
        stopped = host.end()
    watched = episodes + calm // 2
    promises = {
        "lost": episodes + calm - len(played.results),
        "repeated": played.repeated,
        "orphans": host.orphans(),
        "host_did_not_stop": not stopped,
        "memory_grows": [name for name, one in growth.items() if not one.flat(watched)],
    }
    return {
        "episodes": episodes,
        "calm_episodes": calm,
        **promises,
        "broken": [name for name, found in promises.items() if found],
        "given_up": played.given_up,
        "solved": sum(played.results.values()),
        "kills": kills,
        "failed_attempts": played.errors.total(),
        **{f"{name}_megabytes_per_1000_episodes": one.slope(watched) for name, one in growth.items()},
        **{f"{name}_megabytes_at_most": one.largest() for name, one in growth.items()},
        "seconds": round(time.monotonic() - started, 1),
        "load_average_1min": round(os.getloadavg()[0], 2),
    }


def _kill(host: HostProcess, victim: str, kills: dict[str, int]) -> None:
    kills[victim] += 1
    {"page": host.kill_page, "browser": host.kill_browser, "host": host.kill_host}[victim]()


if __name__ == "__main__":
    main()
