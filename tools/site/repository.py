"""Places of the repository's files in the site, and the links between them.

A page is written for readers of the repository: its links are relative to the file that they are in. Here they become
links between pages; a link to source code becomes a link to a page that shows it.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
"""The target of a relative link, up to its anchor."""
FENCE = re.compile(r" *(`{3,}|~{3,})")
FOLDERS = {"quartet/config": "reference/settings.md", "docs/decisions": "decisions/index.md"}
"""Pages that stand for a folder."""
SHOWN = (".py", ".toml", ".js", ".sh")
"""Files that get a page of their own when something links to them."""


def pages_outside() -> dict[str, Path]:
    """Pages that do not lie in `docs/`, by their place in the site."""
    found = {f"{name.lower()}.md": ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING")}
    found["index.md"] = ROOT / "README.md"
    for page in sorted((ROOT / "recipes").glob("**/README.md")):
        found[f"recipes/{'-'.join(page.relative_to(ROOT / 'recipes').parent.parts)}.md"] = page
    return found


def place_of(path: str) -> str | None:
    """The place in the site of a file or folder of the repository, or None when it has none."""
    places = FOLDERS | {page.relative_to(ROOT).as_posix(): place for place, page in pages_outside().items()}
    if path in places:
        return places[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md" if path.endswith(SHOWN) and (ROOT / path).is_file() else None


def linked_sources(markdown: str, page: str) -> set[str]:
    """Source files that the repository's file `page` links to, relative to the repository's root."""
    targets = {target for line in prose(markdown) for _, target in LINK.findall(line)}
    paths = {_from_root(target, page) for target in targets}
    return {path for path in paths if (place_of(path) or "").startswith("source/")}


def relink(markdown: str, page: str, place: str) -> str:
    """The text of the repository's file `page` with links that hold at `place` in the site.

    A link to nothing stays as it is, and the build refuses it.
    """

    def rewrite(match: re.Match[str]) -> str:
        target = place_of(_from_root(match[2], page))
        return match[0] if target is None else match[1] + posixpath.relpath(target, posixpath.dirname(place) or ".")

    return "\n".join(LINK.sub(rewrite, line) if is_prose else line for line, is_prose in _lines(markdown))


def prose(markdown: str) -> Iterator[str]:
    """Yield the lines of a page that are not in a block of code."""
    return (line for line, is_prose in _lines(markdown) if is_prose)


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it stands outside of all blocks of code."""
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
