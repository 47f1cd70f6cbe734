"""The task pages of the package `miniwob`, with their scripts and style sheets as parts to be put inside.

A page in one piece needs no file access while it loads, which is what makes a fresh page per episode affordable.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from quartet.errors import ConfigError, SetupError, nearest

_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="([^"]+)"[^>]*>\s*</script>')
_STYLE_SHEET = re.compile(r'<link\b[^>]*\bhref="([^"]+\.css)"[^>]*>')
_RELATIVE_URL = re.compile(r"url\(\s*['\"]?(?!data:|https?:|file:|#)([^'\")]+)['\"]?\s*\)")
_PART = re.compile(r"<!--part (\S+)-->")


class TaskPage(Struct, frozen=True):
    html: str
    """The page; `<!--part NAME-->` stands where a script or style sheet belongs."""
    parts: dict[str, str]
    """Element text by name. Most pages share most of their parts."""


def html_folder() -> Path:
    """Where the task pages are. Importing the package would import Selenium, so it is only located."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise SetupError("the package `miniwob` is not installed", "pip install miniwob==1.1.0 (only its HTML is used)")
    return Path(spec.origin).parent / "html" / "miniwob"


def stage_url() -> str:
    """A document without scripts, beside the task pages, so that their relative URLs mean the same from it."""
    return (html_folder().parent / "core" / "core.css").as_uri()


@cache
def task_page(family: str) -> TaskPage:
    """The page of a task family. Raises `ConfigError` for an unknown one."""
    folder = html_folder()
    path = folder / f"{family}.html"
    if not path.is_file():
        known = [page.stem for page in folder.glob("*.html")]
        raise ConfigError(f"no MiniWoB++ task {family!r}", nearest(family, known))
    html = path.read_text(encoding="utf-8")
    for pattern in (_SCRIPT, _STYLE_SHEET):
        html = pattern.sub(r"<!--part \1-->", html)
    return TaskPage(html, {name: _part(folder / name) for name in _PART.findall(html)})


@cache
def _part(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        return "<script>" + text.replace("</script", "<\\/script") + "</script>"
    # Relative URLs in a style sheet start from the sheet, not from the page.
    return (
        "<style>"
        + _RELATIVE_URL.sub(lambda url: f'url("{(path.parent / url[1]).resolve().as_uri()}")', text)
        + "</style>"
    )
