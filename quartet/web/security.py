"""Security of the web pages: which clients, origins and methods are accepted, and which resources a page may load.

A page shows text that a model or a web page wrote. If such text were interpreted as markup by mistake, the content
security policy would still block its scripts and its requests to other servers.
"""

import hashlib
from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quartet.access.rules import Refusal, is_token, refuse_foreign_host, refuse_foreign_origin

READING = ("GET", "HEAD")
"""Methods of requests that only read."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without a referrer, a form would be sent with the origin "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Middleware that accepts only `methods`, requires the token or a local host name, and adds security headers.

    Without a token, the server listens on this machine only, and the host named in a request must be a name of this
    machine. Otherwise a foreign page whose name resolves to 127.0.0.1 (DNS rebinding) could read the dashboard through
    the user's browser. With a token, such a page is rejected because the cookie with the token belongs to another name.
    """

    def __init__(self, app: ASGIApp, token: str | None, methods: Sequence[str] = READING) -> None:
        self._app, self._token, self._methods = app, token, methods
        self._cookie = f"quartet_{hashlib.sha256((token or '').encode()).hexdigest()[:12]}"
        """Name of the cookie, derived from the token. Cookies do not depend on the port, so with a fixed name the
        servers of one machine would overwrite each other's cookie."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response that rejects or redirects a request; None if the request may pass."""
        headers = Headers(scope=scope)
        if scope["method"] not in self._methods:
            allowed = ", ".join(self._methods)
            return PlainTextResponse(f"this server answers {allowed} only\n", 405, {"allow": allowed})
        if refusal := refuse_foreign_origin(headers):
            return _refused(refusal)
        if self._token is None:
            refusal = refuse_foreign_host(headers)
            return _refused(refusal) if refusal else None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._fits(dict(query).get("token")):
            return self._admitted(scope["path"], [pair for pair in query if pair[0] != "token"])
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie)
        if cookie is not None and self._fits(unquote(cookie)):
            return None
        return PlainTextResponse("open the address that the command printed: it ends with ?token=...\n", 401)

    def _fits(self, token: str | None) -> bool:
        return token is not None and is_token(token, str(self._token))

    def _admitted(self, path: str, query: list[tuple[str, str]]) -> Response:
        """Redirect to the same address without the token, and store the token in a cookie.

        So the token is neither in the browser's history nor in links.
        """
        # Exactly one slash: two would begin the name of another server.
        target = "/" + path.lstrip("/") + (f"?{urlencode(query)}" if query else "")
        response = RedirectResponse(target, 303)
        response.set_cookie(self._cookie, quote(str(self._token), safe=""), httponly=True, samesite="strict")
        return response


def _refused(refusal: Refusal) -> Response:
    return PlainTextResponse(f"{refusal.message}\n", refusal.status)
