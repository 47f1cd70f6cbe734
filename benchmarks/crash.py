"""Does a run keep its promises if its processes are killed again and again?

    python -m benchmarks.crash --kills 200 --json [--database postgresql] [--setting few]

The runs are short runs on the bandit. Worker, engine, environment host, data manager, trainer and supervisor are killed
by SIGKILL: at every named crash point, at random moments, alone and all at once. Worker and trainer are also stopped
for longer than their lease. With PostgreSQL the server also ends connections, dies and restarts, and freezes for less
and for more than `runtime.ledger_timeout_seconds`. Each run is resumed until its end and then audited
(`quartet.report.audit`). The command exits with 1 if a promise was broken or a crash point was not hit.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from benchmarks.bandit import make_bandit_policy
from benchmarks.crashes.campaign import ALL_AT_WORK, Campaign, both
from benchmarks.crashes.crash_run import CrashRun
from benchmarks.crashes.recipe import SETTINGS, crash_recipe
from benchmarks.lost_generation import lost_generation
from benchmarks.postgresql_server import server_url
from quartet.crash_points import NAMES
from quartet.ledger import Ledger
from quartet.report.audit import AuditReport, audit

KILLS_PER_RUN = 100
"""Number of kills of one run; hitting every crash point takes nearly as many."""


@click.command()
@click.option(
    "--kills", default=200, show_default=True, help="Minimum number of kills; more if needed to hit every crash point."
)
@click.option(
    "--database",
    type=click.Choice(["sqlite", "postgresql"]),
    default="sqlite",
    show_default=True,
    help="Database of the ledger; postgresql starts its own server, which is killed too.",
)
@click.option(
    "--setting",
    "settings",
    type=click.Choice(list(SETTINGS)),
    multiple=True,
    help="Frequency of checkpoints and number of engines of the runs; by default all settings in turn.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of random moments and victims.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the runs in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def main(kills: int, database: str, settings: tuple[str, ...], seed: int, keep: Path | None, as_json: bool) -> None:
    """Attack runs until there were enough kills."""
    with tempfile.TemporaryDirectory() as folder:
        url = server_url(fsync=False) if database == "postgresql" else ""
        result = {"database": database} | measure(kills, seed, keep or Path(folder), url, settings or tuple(SETTINGS))
    for key, value in result.items():
        click.echo(f"{key:24} {value}")
    if as_json:
        click.echo(json.dumps(result))
    if result["findings"] or result["points_missed"]:
        raise SystemExit(1)


def measure(kills: int, seed: int, folder: Path, ledger_url: str, settings: Sequence[str]) -> dict[str, Any]:
    """Attack one run after the other, each with the next setting, until there were enough kills.

    With sparse checkpoints train steps are rolled back.
    """
    begun = time.monotonic()
    policy = make_bandit_policy(folder / "policy")
    reports: list[AuditReport] = []
    hits: Counter[str] = Counter()
    total, waited = 0, 0.0
    while total < kills:
        number = len(reports)
        path = folder / f"run-{number}"
        setting = SETTINGS[settings[number % len(settings)]]
        recipe = crash_recipe(policy, setting, ledger_url=ledger_url)
        with CrashRun(path, recipe) as run:
            campaign = Campaign(run, seed + number)
            sparse = setting.train_steps_per_checkpoint > 1
            points = ALL_AT_WORK if sparse else ALL_AT_WORK - set(both("batches.roll_back"))
            campaign.begin()
            if ledger_url:
                campaign.lost_connections()
                campaign.frozen_server()
            attack(campaign, number, points, min(KILLS_PER_RUN, kills - total))
            total += run.kills
            hits.update(campaign.hits)
        reports.append(audit(path / "run"))
        with closing(Ledger.view(path / "run")) as ledger:
            waited += lost_generation(ledger).waited
        click.echo(f"{total} kills, {time.monotonic() - begun:.0f} s, {json.dumps(reports[-1].to_dict())}", err=True)
    return summary(reports, hits) | {
        "generation_seconds_lost": round(waited, 3),
        "kills": total,
        "runs": len(reports),
        "seconds": round(time.monotonic() - begun),
    }


def attack(campaign: Campaign, number: int, points: Collection[str], kills: int) -> None:
    """Attack a run that has begun: stopped workers and trainers, the crash points of its work, and its end."""
    campaign.late_worker()
    campaign.late_trainer("policy.before")
    campaign.late_trainer("committing.after", dies_at=f"batches.release.{'after' if number % 2 else 'before'}")
    if number == 0:
        campaign.large_records()
        campaign.stopped_trainer()
    campaign.attack(points, kills=kills)
    campaign.end()


def summary(reports: list[AuditReport], hits: Counter[str]) -> dict[str, Any]:
    """Return the sums and findings of all audits."""
    counts = ("appended", "superseded", "trained", "train_steps", "abandoned_steps")
    promises = ("lost", "trained_twice", "over_lag")
    return {
        **{name: sum(getattr(report, name) for report in reports) for name in (*counts, *promises)},
        "replay_identical": all(report.replay_identical for report in reports),
        "findings": [finding.what for report in reports for finding in report.findings],
        "points_hit": len(hits),
        "points_missed": sorted(set(NAMES) - hits.keys()),
    }


if __name__ == "__main__":
    main()
