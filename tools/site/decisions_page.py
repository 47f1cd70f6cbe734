"""The page that lists all decisions, from their headings."""

from repository import ROOT

HEAD = """\
# Decisions

What was not obvious, one page each: the decision, why, and what it costs.

| | |
|---|---|
"""


def decisions_page() -> str:
    """Return the page in Markdown: a table with a row per decision."""
    return HEAD + "".join(
        _row(page.name, page.read_text().partition("\n")[0])
        for page in sorted((ROOT / "docs" / "decisions").glob("*.md"))
    )


def _row(name: str, heading: str) -> str:
    number, _, title = heading.removeprefix("# ").partition(". ")
    return f"| {number} | [{title}]({name}) |\n"
