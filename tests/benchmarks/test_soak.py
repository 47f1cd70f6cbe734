"""The soak test: the slope of memory in closed form, and a short soak with every kind of kill."""

import time

import psutil
import pytest

from benchmarks.soak import host
from benchmarks.soak.__main__ import soak
from benchmarks.soak.host import HostProcess
from benchmarks.soak.memory import MAX_MEGABYTES_PER_1000_EPISODES, MIN_EPISODES, Growth
from quartet import config


def test_the_slope_is_that_of_the_watched_episodes():
    growth = Growth()
    for episode in range(0, 400, 20):
        growth.add(episode, 400 + min(episode, 200) + 0.02 * episode)
    assert growth.slope(200) == pytest.approx(20.0), "megabytes per thousand episodes"
    assert growth.largest() == pytest.approx(607.6)


def test_too_few_episodes_have_no_slope():
    growth = Growth()
    for episode in range(0, 4 * MIN_EPISODES, 10):
        growth.add(episode, float(episode))
    first = 3 * MIN_EPISODES
    assert growth.slope(first) is None and growth.flat(first)


@pytest.mark.parametrize(("share", "flat"), [(0.9, True), (1.1, False)])
def test_memory_that_grows_faster_than_the_bound_is_not_flat(share: float, flat: bool):
    growth = Growth()
    for episode in range(0, 4 * MIN_EPISODES, 10):
        growth.add(episode, share * MAX_MEGABYTES_PER_1000_EPISODES * episode / 1000)
    assert growth.flat(2 * MIN_EPISODES) is flat


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [False, True])
def test_a_host_that_does_not_stop_is_killed_and_reported(monkeypatch, hangs: bool):
    process = HostProcess(config.Env(name="locks", sessions=1)).start()
    if hangs:
        monkeypatch.setattr(host, "EXIT_TIMEOUT_SECONDS", 0.5)
        hung = process.processes()[0]
        hung.suspend()
        while hung.status() != psutil.STATUS_STOPPED:  # a pending SIGTERM would be handled before a pending SIGSTOP
            time.sleep(0.01)
    assert process.end() is not hangs
    assert process.orphans() == 0


@pytest.mark.browser
@pytest.mark.campaign
@pytest.mark.timeout(1200)
async def test_nothing_is_lost_and_nothing_is_left_by_kills_of_page_browser_and_host():
    result = await soak(episodes=32, every=8, calm=300, sessions=2)
    assert result["kills"] == {"page": 1, "browser": 1, "host": 1}
    assert (result["lost"], result["repeated"], result["orphans"], result["given_up"]) == (0, 0, 0, 0)
    assert set(result["broken"]) <= {"memory_grows"}, "a new browser grows"
    assert result["solved"] == 332
    assert all(result[f"{name}_megabytes_per_1000_episodes"] is not None for name in ("client", "host", "browser"))
