"""Security of the dashboard: clients, origins, methods and paths that are served, and rights of a page.

A page shows text that a model or a web page wrote. Should any of it ever be taken for markup, the content security
policy still lets no script of it run and no address outside this server be reached.
"""

import hashlib
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quartet.access.rules import Refusal, is_token, refuse_foreign_host, refuse_foreign_origin

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
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Answers reading requests only, adds the security headers, and asks for the token or for a local address.

    Without a token the server listens on this machine only, and the name it is asked for must be this machine's: else a
    foreign page whose name was pointed at 127.0.0.1 (DNS rebinding) could read it through the user's browser. With a
    token such a page is refused too, because the cookie belongs to the true name.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token
        self._cookie = f"quartet_{hashlib.sha256((token or '').encode()).hexdigest()[:12]}"
        """Cookies know no ports: servers of one machine must not overwrite each other's."""

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
        """The answer to a request that may not pass; None lets it pass."""
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("this server only shows\n", 405, {"allow": "GET, HEAD"})
        if refusal := refuse_foreign_origin(headers):
            return _refused(refusal)
        if self._token is None:
            refusal = refuse_foreign_host(headers)
            return _refused(refusal) if refusal else None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._fits(dict(query).get("token")):
            return self._admitted(scope["path"], [pair for pair in query if pair[0] != "token"])
        if self._fits(cookie_parser(headers.get("cookie", "")).get(self._cookie)):
            return None
        return PlainTextResponse("open the address that `quartet view` printed: it ends with ?token=...\n", 401)

    def _fits(self, token: str | None) -> bool:
        return token is not None and is_token(token, str(self._token))

    def _admitted(self, path: str, query: list[tuple[str, str]]) -> Response:
        """The same address without the token, which stays in a cookie: not in the history, nor in links."""
        # One slash: two would begin the name of another server.
        target = "/" + path.lstrip("/") + (f"?{urlencode(query)}" if query else "")
        response = RedirectResponse(target, 303)
        response.set_cookie(self._cookie, str(self._token), httponly=True, samesite="strict")
        return response


def _refused(refusal: Refusal) -> Response:
    return PlainTextResponse(f"{refusal.message}\n", refusal.status)
