"""Rendering of templates. All values are escaped, so that text of a model or of a web page never becomes markup."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import to_builtins
from starlette.requests import Request
from starlette.responses import HTMLResponse

from quartet.report import labels, show
from quartet.web.pages import NAVIGATION

_TEMPLATES = Environment(
    loader=PackageLoader("quartet.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals["labels"] = labels
_TEMPLATES.filters |= {
    "count": show.count,
    "percent": show.percent,
    "interval": show.interval,
    "decimal": show.decimal,
    "duration": show.duration,
    "size": show.size,
    "moment": show.moment,
    "builtins": to_builtins,
}


def render(request: Request, template: str, *, status_code: int = 200, **context: Any) -> HTMLResponse:
    """Return a page from `templates/`. A page about one run passes `run`, and as `page` its name in the navigation."""
    context = {"run": None, "page": "", "runs": request.app.state.runs, "navigation": NAVIGATION} | context
    html = _TEMPLATES.get_template(template).render(request=request, **context)
    return HTMLResponse(html, status_code=status_code)
