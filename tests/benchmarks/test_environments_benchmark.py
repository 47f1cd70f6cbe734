"""The benchmark of environments measures what it says, at tiny sizes."""

import json
import shutil
import subprocess
import sys

import pytest

from benchmarks.environments.cluster import overhead_ms, share_of_ideal
from benchmarks.environments.pages import play


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
@pytest.mark.timeout(600)
def test_selenium_is_compared_where_it_is_installed():
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver on PATH")
    command = ["-m", "benchmarks.environments", "--pages", "1", "--episodes", "4", "--sessions", "2", "--steps", "1"]
    done = subprocess.run([sys.executable, *command, "--json"], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ratio_to_selenium"] > 0 and result["ratio_to_browsergym"] is None
    assert set(result["share_of_ideal"]) == {"2"}
