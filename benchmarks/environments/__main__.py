"""Measure the speed of environments: MiniWoB++ pages against Selenium and BrowserGym, the cluster's cost per step, and
up to 256 sessions of an environment of one second.

    python -m benchmarks.environments --json
    python -m benchmarks.environments --pages 1 --episodes 8 --sessions 4 --steps 2   # a trial

Selenium runs in this Python; it needs `chromium` and `chromedriver` on PATH. BrowserGym pins an old Playwright, so it
needs a Python of its own: `--browsergym-python`. A contender that is missing has no ratio; one that ends
with an error at a number of pages has no rate there, and the error is printed.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks.environments.cluster import overhead_ms, share_of_ideal
from benchmarks.environments.pages import Pages, play
from quartet.env.miniwob.html import html_folder

CONTENDER = Path(__file__).with_name("contender.py")


@click.command()
@click.option("--pages", multiple=True, type=int, default=(1, 4, 8, 16), show_default=True)
@click.option(
    "--episodes", default=400, show_default=True, help="Episodes at each number of pages; contenders: a tenth."
)
@click.option("--sessions", multiple=True, type=int, default=(1, 4, 16, 64, 256), show_default=True)
@click.option("--steps", default=10, show_default=True, help="Steps of one second in each session.")
@click.option("--browsergym-python", default="", help="Python with the package browsergym-miniwob.")
@click.option("--json", "as_json", is_flag=True)
def main(
    pages: tuple[int, ...],
    episodes: int,
    sessions: tuple[int, ...],
    steps: int,
    browsergym_python: str,
    as_json: bool,
) -> None:
    """Measure the environments."""
    measured = [asyncio.run(play(count, episodes)) for count in pages]
    pythons = {"selenium": sys.executable if _has_selenium() else "", "browsergym": browsergym_python}
    others = {
        driver: {count: _contender(driver, python, count, max(episodes // 10, count)) for count in pages}
        for driver, python in pythons.items()
        if python
    }
    best = max(measured, key=lambda one: one.episodes_per_second)
    result: dict[str, Any] = {
        "episodes_per_second": {one.pages: one.episodes_per_second for one in measured},
        **{f"{driver}_episodes_per_second": rates for driver, rates in others.items()},
        **{f"ratio_to_{driver}": _ratio(best, others.get(driver, {})) for driver in pythons},
        "share_of_browser_ceiling": best.browser_share,
        "megabytes_per_page": _megabytes_per_page(measured),
        "overhead_ms_per_step": asyncio.run(overhead_ms(200 * steps)),
        "share_of_ideal": {count: asyncio.run(share_of_ideal(count, steps)) for count in sessions},
        "load_average_1min": round(os.getloadavg()[0], 2),
    }
    click.echo(json.dumps(result) if as_json else "\n".join(f"{name:34} {value}" for name, value in result.items()))


def _has_selenium() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


def _contender(driver: str, python: str, pages: int, episodes: int) -> float | None:
    """Return the episodes per second of another driver; None, and print the error, if it failed."""
    environment = os.environ | {"MINIWOB_URL": f"{html_folder().as_uri()}/"}
    command = [python, str(CONTENDER), driver, str(pages), str(episodes)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        click.echo(f"{driver} with {pages} pages ended with an error: {done.stderr[-500:]}", err=True)
        return None
    return float(done.stdout.splitlines()[-1])


def _ratio(best: Pages, rates: dict[int, float | None]) -> float | None:
    """Return our best rate divided by the contender's best; None if it has none."""
    found = [rate for rate in rates.values() if rate]
    return round(best.episodes_per_second / max(found), 2) if found else None


def _megabytes_per_page(measured: list[Pages]) -> float | None:
    """Return the memory of a further page, between the fewest and the most pages; None for one number of pages."""
    few, many = min(measured, key=lambda one: one.pages), max(measured, key=lambda one: one.pages)
    if few.pages == many.pages:
        return None
    return round((many.browser_megabytes - few.browser_megabytes) / (many.pages - few.pages), 1)


if __name__ == "__main__":
    main()
