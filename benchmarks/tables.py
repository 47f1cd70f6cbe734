"""Tables and figures of the documentation, made from the raw results in `benchmarks/results`.

    python -m benchmarks.tables --check     # exit code 1 if a page differs from the raw results
    python -m benchmarks.tables --write     # make the tables of all pages again

A generated text is enclosed by `<!-- results: curation.jsonl goals -->` and `<!-- /results -->`. The word after the
file is a view of the experiment. An experiment without its own views (`benchmarks/record.py`) has a view of every
number of its JSON line. It is named by the number's dotted name, and optionally a format after a colon, as in Python
(`speed.distinct:,.0f`), and shows the median over the lines. A file of another model, `EXPERIMENT.MODEL.jsonl`, has the
views of its experiment.
"""

import difflib
import importlib
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from benchmarks.learning_experiments import NAMES
from benchmarks.published import NAMES as PARTS
from benchmarks.raw_results import FOLDER, RawResults
from benchmarks.strategies import IN_A_BROWSER
from benchmarks.strategies import NAMES as STRATEGIES

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/**/*.md", "recipes/*/README.md")
MADE = re.compile(r"(<!-- results: (\S+)\.jsonl (\S+) -->)(.*?)(<!-- /results -->)", re.DOTALL)
View = Callable[[Path], str]
"""Function that makes a Markdown table, or the text of one figure, from a file of raw results."""


EXPERIMENTS: dict[str, str] = {
    "curation": "benchmarks.locks.views",
    "lag": "benchmarks.lag.views",
    **dict.fromkeys(("modes", "modes_desktop", "april", "rollart"), "benchmarks.modes.views"),
    "together": "benchmarks.together.views",
    "against_trl": "benchmarks.trl_contenders.views",
    **{f"learning_{name}": "benchmarks.learning_experiments.report" for name in NAMES},
    **{f"strategies_{name}": "benchmarks.strategies.views" for name in (*STRATEGIES, *IN_A_BROWSER)},
    **{f"scale_{name}": "benchmarks.published.views" for name in PARTS},
    **{f"runs_{folder.name}": "benchmarks.runs.views" for folder in (ROOT / "recipes").iterdir()},
}
"""Name of a file of raw results -> module with its views, `VIEWS`, which is imported when a page needs one."""


@click.command()
@click.option("--check", is_flag=True, help="Print differences between pages and raw results; then exit with 1.")
@click.option("--write", is_flag=True, help="Write the tables into the pages.")
@click.option("--root", type=click.Path(path_type=Path, exists=True), default=ROOT, hidden=True)
@click.option("--results", type=click.Path(path_type=Path), default=FOLDER, hidden=True)
def main(check: bool, write: bool, root: Path, results: Path) -> None:
    """Compare the documentation's tables with the raw results, or make them again."""
    if check == write:
        raise click.UsageError("give either --check or --write")
    differing = 0
    for page in pages(root):
        text = page.read_text()
        renewed = renew(text, results)
        if renewed == text:
            continue
        differing += 1
        if write:
            page.write_text(renewed)
        name = str(page.relative_to(root))
        lines = (text.splitlines(keepends=True), renewed.splitlines(keepends=True))
        click.echo("".join(difflib.unified_diff(*lines, name, f"{name} from the raw results", n=0)))
    if check and differing:
        click.echo(f"{differing} pages differ from the raw results: `python -m benchmarks.tables --write` renews them")
        sys.exit(1)


def pages(root: Path) -> Iterator[Path]:
    """Yield every page that may contain a generated text."""
    for pattern in PAGES:
        yield from sorted(root.glob(pattern))


def renew(text: str, results: Path) -> str:
    """Return a page with its generated texts made again.

    Raises `click.ClickException` for an unknown view or a missing file.
    """

    def made(match: re.Match[str]) -> str:
        begin, name, view, _, end = match.groups()
        shown = _view(name, view)(_existing(results / f"{name}.jsonl"))
        return f"{begin}\n\n{shown}\n\n{end}" if "\n" in shown else f"{begin}{shown}{end}"

    return MADE.sub(made, text)


def _view(name: str, view: str) -> View:
    experiment = name.partition(".")[0]
    if experiment not in EXPERIMENTS:
        return lambda file: median(file, view)
    views = views_of(experiment)
    if view not in views:
        raise click.ClickException(f"{name}.jsonl has no view {view!r}: {', '.join(views)}")
    return views[view]


def views_of(experiment: str) -> Mapping[str, View]:
    """Return the views of an experiment that has its own, by their names."""
    return importlib.import_module(EXPERIMENTS[experiment]).VIEWS


def median(file: Path, view: str) -> str:
    """Return the median of one number over all lines of a file, as text."""
    path, _, format_spec = view.partition(":")
    numbers = []
    for _, result in RawResults(file, dict[str, Any]).read():
        try:
            found: Any = result
            for name in path.split("."):
                found = found[name]
            numbers.append(float(found))
        except (KeyError, TypeError) as error:
            raise click.ClickException(f"{file} has no number {path!r}: {', '.join(result)}") from error
    return format(statistics.median(numbers), format_spec or ".3g")


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise click.ClickException(f"a page uses {file}, which does not exist: run its experiment, or remove the table")
    return file


if __name__ == "__main__":
    main()
