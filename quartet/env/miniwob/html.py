"""Task pages of the package `miniwob`, with inlined pictures and with placeholders for scripts and style sheets.

A complete page loads neither files nor network resources. So it needs no permissions that a hostile page could abuse,
and a new page per episode is cheap.
"""

import mimetypes
import re
from base64 import b64encode
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from quartet.errors import ConfigError, SetupError, nearest

_SCRIPT = re.compile(r'<script\b[^>]*\bsrc="([^"]+)"[^>]*>\s*</script>')
_STYLE_SHEET = re.compile(r'<link\b[^>]*\bhref="([^"]+\.css)"[^>]*>')
_PICTURE = re.compile(r"""(url\(\s*['"]?|\bsrc=['"])([\w./-]+\.(?:png|gif|jpe?g|svg))(?=['")\s])""")
_PART = re.compile(r"<!--part (\S+)-->")


class TaskPage(Struct, frozen=True):
    html: str
    """The page, with `<!--part NAME-->` in place of each script or style sheet."""
    parts: dict[str, str]
    """Element text by name. Most pages share most of their parts."""


def html_folder() -> Path:
    """Return the folder of task pages. The package is located without importing it, which would import Selenium."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise SetupError("the package `miniwob` is not installed", "pip install miniwob==1.1.0 (only its HTML is used)")
    return Path(spec.origin).parent / "html" / "miniwob"


@cache
def task_page(family: str) -> TaskPage:
    """Return the page of a task family. Raise `ConfigError` for an unknown family."""
    folder = html_folder()
    path = folder / f"{family}.html"
    if not path.is_file():
        known = [page.stem for page in folder.glob("*.html")]
        raise ConfigError(f"no MiniWoB++ task {family!r}", nearest(family, known))
    html = _with_pictures(path.read_text(encoding="utf-8"), folder)
    for pattern in (_SCRIPT, _STYLE_SHEET):
        html = pattern.sub(r"<!--part \1-->", html)
    return TaskPage(html, {name: _part(folder / name) for name in _PART.findall(html)})


@cache
def _part(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        return "<script>" + text.replace("</script", "<\\/script") + "</script>"
    return "<style>" + _with_pictures(text, path.parent) + "</style>"


def _with_pictures(text: str, folder: Path) -> str:
    """Return the text with its pictures inlined; their URLs are relative to the folder."""

    def inline(match: re.Match[str]) -> str:
        path = folder / match[2]
        if not path.is_file():
            return match[0]
        return f"{match[1]}data:{mimetypes.guess_type(path)[0]};base64,{b64encode(path.read_bytes()).decode()}"

    return _PICTURE.sub(inline, text)
