"""Summary of a run as a table."""

from typing import Any

from rich.table import Table

from quartet.ledger.quarantine import QUARANTINED
from quartet.report.labels import HELD_OUT_SAMPLED
from quartet.report.show import decimal, interval

CAPTION_COLUMNS = 48
"""Minimum width of the table. Its caption is wrapped to the table's width, and the longest line should fit."""


def summary_table(summary: dict[str, Any]) -> Table:
    """Return a table of success per task, before and after training and (if it was run) of the control, with totals."""
    control = summary.get("success_control") is not None
    table = Table(title=_headline(summary), title_style="bold", header_style="dim")
    table.min_width, table.caption_justify = CAPTION_COLUMNS, "left"
    table.add_column("task, greedy")
    for heading in ("before", "after", *(["control"] if control else [])):
        table.add_column(heading, justify="right")
    for family, rates in summary["per_task"].items():
        table.add_row(family, *(_percent(rates[key]) for key in ("before", "after", *(["control"] if control else []))))
    table.add_section()
    for name, suffix in (("all, sampled", "_sampled"), ("all, greedy", ""), ("without demonstrations", None)):
        keys = (
            ("success_undemonstrated_before", "success_undemonstrated_after", "success_control_undemonstrated")
            if suffix is None
            else (f"success_before{suffix}", f"success_after{suffix}", f"success_control{suffix}")
        )
        if suffix is None and all(summary.get(key) is None for key in keys):
            continue  # either demonstrations were used for all tasks, or for none
        table.add_row(name, *(_percent(summary.get(key)) for key in keys[: 2 + control]), style="bold")
    for category, rates in summary.get("success_by_category", {}).items():  # missing in summaries of older runs
        keys = ("before", "after", "control")[: 2 + control]
        table.add_row(f"{category}, greedy", *(_percent(rates[key]) for key in keys), style="bold")
    table.caption = "".join(f"{line}\n" for line in (*_uncounted(summary), *_quarantined(summary))) + (
        f"{summary['rollouts_finished']:,} training rollouts in {summary['train_seconds']:,.0f} s of training\n"
        f"{decimal(summary['rollouts_per_second'], 1)} per second, {summary['train_steps']:,} train steps\n"
        f"lost {summary['lost']}, trained twice {summary['trained_twice']}"
    )
    return table


def _headline(summary: dict[str, Any]) -> str:
    """Return the title: success before and after training at the training temperature, with 95 % intervals."""
    rates = (_sampled(summary, when) for when in ("before", "after"))
    return f"{summary['name']}: {HELD_OUT_SAMPLED}\n{' → '.join(rates)}"


def _sampled(summary: dict[str, Any], when: str) -> str:
    rate = summary.get(f"success_{when}_sampled")
    episodes = summary.get("evaluations", {}).get(f"{when}_sampled", {}).get("episodes")
    return _percent(rate) + (f" ({interval(rate, episodes)})" if rate is not None and episodes else "")


def _uncounted(summary: dict[str, Any]) -> list[str]:
    """Return one line per evaluation in which rollouts ended without a result."""
    return [
        f"{name.replace('_', ', ')}: {one['episodes']:,} of {one['asked']:,} episodes have a result; without one: "
        + ", ".join(f"{family} {count}" for family, count in one["uncounted"].items())
        for name, one in summary.get("evaluations", {}).items()  # missing in summaries of older runs
        if one["uncounted"]
    ]


def _quarantined(summary: dict[str, Any]) -> list[str]:
    """Return one line if groups were quarantined because their train steps failed."""
    count = summary.get("dropped_groups", {}).get(QUARANTINED)
    return [f"{count:,} groups quarantined: their train steps failed"] if count else []


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
