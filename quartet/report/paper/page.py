"""Report of runs: one self-contained HTML file, and its figures as PNG files for a paper."""

import base64
import io
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from msgspec import Struct

from quartet import __version__
from quartet.files.disk import whole_file
from quartet.on_progress import OnProgress, no_progress
from quartet.report import show
from quartet.report.comparison.cautions import cautions, refuse_copies
from quartet.report.comparison.groups import Group, common_target, differing_settings, group_runs, rows, target_note
from quartet.report.comparison.table import show_group, show_interval
from quartet.report.paper.drawing import STYLE, Method, methods
from quartet.report.paper.figures import FIGURES, Drawn
from quartet.report.paper.reported_run import ReportedRun

PAGE = "report.html"
PNG_DOTS_PER_INCH = 300
_SVG_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
"""Metadata that are omitted from the SVG because they refer to external addresses."""


class Picture(Struct, frozen=True, kw_only=True):
    """One figure on the page."""

    name: str
    caption: str
    source: str
    """`data:` address of the SVG."""


def write_report(
    runs: Sequence[ReportedRun],
    folder: Path,
    target: float | None = None,
    on_progress: OnProgress = no_progress,
) -> list[Path]:
    """Write `report.html` and a `FIGURE.png` for each figure into `folder`, over existing files; return their paths.

    Raise `ConfigError` if a run is given twice.
    """
    results = [run.result for run in runs]
    groups, named = group_runs(results), target is not None
    target = common_target(results) if target is None else target
    refuse_copies(groups)
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    shown, pictures, files = methods(groups, runs), list[Picture](), list[Path]()
    with matplotlib.rc_context(STYLE):
        for name, drawn in FIGURES.items():
            figure = _draw(drawn, shown)
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=PNG_DOTS_PER_INCH)
            pictures.append(Picture(name=name, caption=drawn.caption, source=_svg_address(figure)))
            on_progress(len(files), len(FIGURES))
    page = folder / PAGE
    with whole_file(page) as fresh:
        fresh.write_text(_page(runs, groups, pictures, target, target_note(target, named=named)))
    return [page, *files]


def _draw(drawn: Drawn, shown: Sequence[Method]) -> Figure:
    figure = Figure()
    drawn.draw(figure, shown)
    return figure


def _svg_address(figure: Figure) -> str:
    """Return the figure as the `data:` address of an SVG.

    The page embeds it as an image instead of SVG elements, so that no script can run and no ids can collide.
    """
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata=_SVG_METADATA)
    return "data:image/svg+xml;base64," + base64.b64encode(file.getvalue()).decode()


def _page(
    runs: Sequence[ReportedRun], groups: Sequence[Group], pictures: Sequence[Picture], target: float, note: str
) -> str:
    first, *others = groups
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters |= {"percent": show.percent, "duration": show.duration, "count": show.count}
    lines = [
        (
            row.label,
            [show_group(group, row) for group in groups],
            [show_interval(group.minus(first, row.value), row, signed=True) for group in others],
        )
        for row in rows(target)
    ]
    return templates.get_template(PAGE).render(
        title=", ".join(group.label for group in groups),
        groups=groups,
        others=others,
        lines=lines,
        target_note=note,
        cautions=cautions(groups),
        differing=differing_settings(groups),
        pictures=pictures,
        runs=runs,
        style=Markup((Path(__file__).parent / "report.css").read_text()),  # ours
        version=__version__,
        written=show.moment(time.time()),
    )
