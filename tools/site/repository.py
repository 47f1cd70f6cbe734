"""Locations of the repository's files in the site, and the links between them.

Pages are written for readers of the repository: a link is relative to the file that contains it. This module converts
such links to links between pages of the site; a link to source code becomes a link to a page that shows the code.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
"""Pattern of the target of a relative link, up to its anchor."""
FENCE = re.compile(r" *(`{3,}|~{3,})")
FOLDERS = {"quartet/config": "reference/settings.md", "docs/decisions": "decisions/index.md"}
"""Page to which links to a folder lead, by folder."""
SHOWN = (".py", ".toml", ".js", ".sh")
"""Suffixes of files that get their own page if a page links to them."""


@cache
def pages_outside() -> Mapping[str, Path]:
    """Return the pages from outside of `docs/`, by their location in the site. They are searched for once."""
    found = {f"{name.lower()}.md": ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING")}
    found["index.md"] = ROOT / "README.md"
    for page in sorted((ROOT / "recipes").glob("**/README.md")):
        found[f"recipes/{'-'.join(page.relative_to(ROOT / 'recipes').parent.parts)}.md"] = page
    return found


@cache
def _named_places() -> Mapping[str, str]:
    return FOLDERS | {page.relative_to(ROOT).as_posix(): place for place, page in pages_outside().items()}


def place_of(path: str) -> str | None:
    """Return the location in the site of a file or folder of the repository; None if it is not in the site."""
    if path in _named_places():
        return _named_places()[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md" if path.endswith(SHOWN) and (ROOT / path).is_file() else None


def linked_sources(markdown: str, page: str) -> set[str]:
    """Return the source files to which the file `page` links, relative to the repository's root."""
    targets = {target for line in prose(markdown) for _, target in LINK.findall(line)}
    paths = {_from_root(target, page) for target in targets}
    return {path for path in paths if (place_of(path) or "").startswith("source/")}


def relink(markdown: str, page: str, place: str) -> str:
    """Return the text of the repository's file `page` with links that are correct at `place` in the site.

    A link to a missing file is kept, and the build fails at it.
    """

    def rewrite(match: re.Match[str]) -> str:
        target = place_of(_from_root(match[2], page))
        return match[0] if target is None else match[1] + posixpath.relpath(target, posixpath.dirname(place) or ".")

    return "\n".join(LINK.sub(rewrite, line) if is_prose else line for line, is_prose in _lines(markdown))


def prose(markdown: str) -> Iterator[str]:
    """Yield the lines of a page that are not in a block of code."""
    return (line for line, is_prose in _lines(markdown) if is_prose)


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is outside of all blocks of code."""
    fence = ""
    for line in markdown.split("\n"):
        match = FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and fence and match[1].startswith(fence) and line.strip() == match[1]:
            fence = ""
            yield line, False
            continue
        yield line, not fence


def _from_root(target: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
