"""Hooks that extend MkDocs: pages from outside of `docs/`, generated pages, links, drawings."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import state_diagram
from commands_page import commands_page
from decisions_page import decisions_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from repository import ROOT, linked_sources, pages_outside, relink
from settings_page import settings_page

DRAWING = re.compile(r"^!\[(?P<title>[^]]*)\]\((?P<file>[^)]+\.svg)\)$", re.MULTILINE)
GENERATED = {
    "decisions/index.md": decisions_page,
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
}
SOURCE_PAGE = """\
---
search:
  exclude: true
hide: [toc]
---
# {name}

`{path}`

``````{language}
{text}
``````
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Register the drawing of state machines at build time, so that the pages need no script for it."""
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "mermaid", "class": "drawing", "format": state_diagram.fence}]
    }
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of `docs/`, then replace the patterns of the navigation by pages."""
    for place, page in pages_outside().items():
        files.append(File.generated(config, place, content=page.read_text()))
    for place, make in GENERATED.items():
        files.append(File.generated(config, place, content=make()))
    pages = [file for file in files if file.is_documentation_page()]
    for path in sorted(set().union(*(linked_sources(page.content_string, _path(page.src_uri)) for page in pages))):
        files.append(File.generated(config, f"source/{path}.md", content=_source_page(path)))
    assert config.nav is not None
    named = set(_names(config.nav))
    config.nav = _fill(config.nav, sorted({page.src_uri for page in pages} - named))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    return _inline_drawings(relink(markdown, _path(place), place), Path(config.docs_dir))


def _path(place: str) -> str:
    """Return the repository's file of a page; a generated page counts as a file in `docs/`."""
    outside = pages_outside()
    return outside[place].relative_to(ROOT).as_posix() if place in outside else f"docs/{place}"


def _source_page(path: str) -> str:
    file = ROOT / path
    language = file.suffix.lstrip(".")
    return SOURCE_PAGE.format(name=file.name, path=path, language=language, text=file.read_text().rstrip())


def _inline_drawings(markdown: str, docs: Path) -> str:
    """Insert each drawing that is a paragraph into the page itself, so that it has the page's colours."""

    def inline(match: re.Match[str]) -> str:
        svg = (docs / "images" / match["file"].split("images/")[-1]).read_text().strip()
        named = svg.replace("<svg ", f'<svg role="img" aria-label="{match["title"]}" ', 1)
        return f'<div class="drawing">{" ".join(line.strip() for line in named.splitlines())}</div>'

    return DRAWING.sub(inline, markdown)


def _names(nav: list[Any]) -> list[str]:
    """Return the pages that a navigation names one by one."""
    values = [value for item in nav for value in (item.values() if isinstance(item, dict) else [item])]
    return [name for value in values for name in (_names(value) if isinstance(value, list) else [value])]


def _fill(nav: list[Any], unnamed: list[str]) -> list[Any]:
    """Return the navigation with every pattern replaced by the pages that it matches."""
    filled: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            filled.append({title: _fill(v, unnamed) if isinstance(v, list) else v for title, v in item.items()})
        elif "*" in item:
            filled += [name for name in unnamed if fnmatch(name, item)]
        else:
            filled.append(item)
    return filled
