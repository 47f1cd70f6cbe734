"""The benchmark of environments measures what it says, at tiny sizes."""

import json
import shutil
import subprocess
import sys

import psutil
import pytest

from benchmarks.environments.cluster import overhead_ms, share_of_ideal
from benchmarks.environments.pages import FAMILY, play
from benchmarks.processor_time import tree_seconds
from quartet import config
from quartet.env.miniwob.env import MiniWobPool, MiniWobSession
from quartet.types import Task


async def test_waiting_sessions_are_never_faster_than_ideal():
    assert 0 < await share_of_ideal(3, 2, seconds=0.05) <= 1
    assert await overhead_ms(5) > 0


@pytest.mark.browser
@pytest.mark.campaign
async def test_pages_are_played_and_measured():
    measured = await play(pages=2, episodes=4)
    assert measured.pages == 2 and measured.episodes_per_second > 0
    assert 0 < measured.browser_share <= 1 and measured.browser_megabytes > 50


@pytest.mark.browser
@pytest.mark.campaign
async def test_the_processor_time_of_a_page_whose_process_was_killed_still_counts():
    pool = MiniWobPool(config.Env(name="miniwob", sessions=1, screenshots=True, step_timeout_seconds=120.0))
    try:
        session = await pool.acquire()
        assert isinstance(session, MiniWobSession)
        for seed in range(5):
            await session.reset(Task(env="miniwob", family=FAMILY, seed=seed))
        browser = psutil.Process(session.browser.pid)
        pages = [one for one in browser.children(recursive=True) if "--type=renderer" in one.cmdline()]
        used, used_by_pages = tree_seconds(browser), sum(one.cpu_times().user for one in pages)
        for page in pages:
            page.kill()
        psutil.wait_procs(pages, timeout=10)
        assert used_by_pages > 0.1 and tree_seconds(browser) >= used
    finally:
        await pool.close()


@pytest.mark.browser
@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_selenium_is_compared_where_it_is_installed():
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver on PATH")
    command = ["-m", "benchmarks.environments", "--pages", "1", "--episodes", "4", "--sessions", "2", "--steps", "1"]
    command += ["--browsergym-python", sys.executable]  # which does not have it
    done = subprocess.run([sys.executable, *command, "--json"], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert "browsergym with 1 pages ended with an error" in done.stderr and "No module named" in done.stderr
    assert result["ratio_to_selenium"] > 0 and result["ratio_to_browsergym"] is None
    assert set(result["share_of_ideal"]) == {"2"}
