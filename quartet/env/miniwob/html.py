"""The task pages of the package `miniwob`, with their scripts, style sheets and pictures as parts to be put inside.

A page in one piece loads nothing, neither files nor from a network: it needs no rights that a hostile page could use,
and a fresh page per episode is affordable.
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
    """The page; `<!--part NAME-->` stands where a script or style sheet belongs."""
    parts: dict[str, str]
    """Element text by name. Most pages share most of their parts."""


def html_folder() -> Path:
    """Where the task pages are. Importing the package would import Selenium, so it is only located."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise SetupError("the package `miniwob` is not installed", "pip install miniwob==1.1.0 (only its HTML is used)")
    return Path(spec.origin).parent / "html" / "miniwob"


@cache
def task_page(family: str) -> TaskPage:
    """The page of a task family. Raises `ConfigError` for an unknown one."""
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
    """The text with its pictures inside; URLs in a page or style sheet start from its folder."""

    def inline(match: re.Match[str]) -> str:
        path = folder / match[2]
        if not path.is_file():
            return match[0]
        return f"{match[1]}data:{mimetypes.guess_type(path)[0]};base64,{b64encode(path.read_bytes()).decode()}"

    return _PICTURE.sub(inline, text)
