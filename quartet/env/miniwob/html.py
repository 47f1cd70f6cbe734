"""The task pages of the package `miniwob`, each as one string with its scripts and style sheets inside.

A page in one piece needs no file access while it loads, which is what makes a fresh page per episode affordable.
"""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from quartet.errors import ConfigError, SetupError, nearest

_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="([^"]+)"[^>]*>\s*</script>')
_STYLE_SHEET = re.compile(r'<link\b[^>]*\bhref="([^"]+\.css)"[^>]*>')
_RELATIVE_URL = re.compile(r"url\(\s*['\"]?(?!data:|https?:|file:|#)([^'\")]+)['\"]?\s*\)")


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
def task_html(family: str) -> str:
    """The page of a task family. Raises `ConfigError` for an unknown one."""
    folder = html_folder()
    path = folder / f"{family}.html"
    if not path.is_file():
        raise ConfigError(
            f"no MiniWoB++ task {family!r}", nearest(family, [page.stem for page in folder.glob("*.html")])
        )
    page = _SCRIPT.sub(lambda match: _script(folder / match[1]), path.read_text(encoding="utf-8"))
    return _STYLE_SHEET.sub(lambda match: _style_sheet(folder / match[1]), page)


def _script(path: Path) -> str:
    return "<script>" + path.read_text(encoding="utf-8").replace("</script", "<\\/script") + "</script>"


def _style_sheet(path: Path) -> str:
    """Relative URLs in a style sheet start from the sheet, not from the page."""

    def absolute(match: re.Match[str]) -> str:
        return f'url("{(path.parent / match[1]).resolve().as_uri()}")'

    return "<style>" + _RELATIVE_URL.sub(absolute, path.read_text(encoding="utf-8")) + "</style>"
