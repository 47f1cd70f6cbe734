"""`quartet trace`: write a time window of a run as a trace or a picture."""

import json
from pathlib import Path

import click

from quartet.cli.parameters import JSON, RUNS, Amount
from quartet.errors import ConfigError
from quartet.files.disk import usable_output
from quartet.report.default_window import default_window
from quartet.telemetry.slices import run_extent
from quartet.telemetry.spans import decode_spans, read_spans
from quartet.terminal.say import say

PICTURES = (".png", ".svg", ".pdf")
MOST_SPANS = 20_000
"""Maximum number of spans of each run; if its window has more, the longest of each row."""


@click.command(name="trace")
@RUNS
@click.option(
    "--from",
    "start",
    type=Amount(min=0),
    help="Start in seconds of the run. Default: the window ends with training.",
)
@click.option(
    "--seconds",
    type=Amount(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Length of the window, at most to the end of the run.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, help="A .json, .png, .svg or .pdf file."
)
@JSON
def command(runs: tuple[Path, ...], start: float | None, seconds: float, output: Path, as_json: bool) -> None:
    """Write when each module of RUNS worked, and what it waited for, as a trace or a picture.

    A .json file is a Chrome trace: open it at ui.perfetto.dev or chrome://tracing. A picture has one row per module and
    session, and shows several runs below each other.
    """
    from quartet.report.chrome_trace import chrome_trace
    from quartet.report.timeline import Panel, draw_timeline

    if output.suffix not in (".json", *PICTURES) or (output.suffix == ".json" and len(runs) > 1):
        raise ConfigError(
            f"cannot write {len(runs)} run(s) to {output}",
            "give one run for a .json file, or write a .png, .svg or .pdf picture of one or several runs",
        )
    windows = [_window(run, start, seconds) for run in runs]
    seconds = max(length for _, length in windows)
    pages = [
        read_spans(run, begin, begin + seconds, max_spans=MOST_SPANS)
        for run, (begin, _) in zip(runs, windows, strict=True)
    ]
    panels = [
        Panel(run.resolve().name, page.spans, begin) for run, page, (begin, _) in zip(runs, pages, windows, strict=True)
    ]
    with usable_output(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.suffix == ".json":
            output.write_text(json.dumps(chrome_trace(panels[0].spans, panels[0].start)))
        else:
            draw_timeline(panels, seconds, output)
    count = sum(len(panel.spans) for panel in panels)
    truncated = any(page.truncated for page in pages)
    if as_json:
        say(json.dumps({"output": str(output), "spans": count, "truncated": truncated}))
    else:
        left_out = f"; {decode_spans.damaged} damaged lines left out" if decode_spans.damaged else ""
        say(f"{count} spans in {output}{left_out}")
        if truncated:
            say(
                f"the window has more than {MOST_SPANS:,} spans of a run: the longest of each row were kept, and "
                "shares of time are too low\n  -> give fewer --seconds",
                fg="yellow",
                err=True,
            )


def _window(run: Path, start: float | None, seconds: float) -> tuple[float, float]:
    """Return the window's start in Unix seconds and its length. Raise `ConfigError` if it has no records."""
    extent, opening = run_extent(run), default_window(run, seconds)
    if extent is None or opening is None:
        raise ConfigError(f"{run} has no records", "give the folder of a run that has started")
    if start is None:
        return opening
    recorded = extent[1] - extent[0]
    if start >= recorded:
        raise ConfigError(
            f"--from {start:g} is after the end of {run}, which was recorded for {recorded:.1f} s",
            f"give --from a number of seconds below {recorded:.1f}, or omit it to see the end of training",
        )
    return extent[0] + start, min(seconds, recorded - start)
