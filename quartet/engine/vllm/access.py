"""Access control of a vLLM server that Quartet starts.

vLLM imports this file because of `--middleware`, possibly in an environment without Quartet's other dependencies.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

from quartet.access.rules import Refusal, refuse_client

KEY_VARIABLE = "VLLM_API_KEY"
"""Environment variable with the key. vLLM itself checks the key only below `/v1`, but other routes change weights."""

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class RequireKey:
    """ASGI middleware that rejects, at every route, requests without the key and requests from web pages."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app, self._key = app, os.environ[KEY_VARIABLE]

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        method = scope.get("method", "GET")  # a WebSocket starts with a GET
        # Some of vLLM's commands are POST requests without a body, so they have no content type to check.
        has_body = ("content-length" in headers and headers["content-length"] != "0") or "transfer-encoding" in headers
        if refusal := refuse_client(method if has_body else "GET", headers, self._key):
            await _refuse(scope, send, refusal)
        else:
            await self._app(scope, receive, send)


async def _refuse(scope: Scope, send: Send, refusal: Refusal) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close"})
        return
    content_type = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": content_type})
    await send({"type": "http.response.body", "body": refusal.message.encode()})
