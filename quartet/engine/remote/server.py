"""HTTP calls that all third-party inference servers have in common."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from quartet.access.token import bearer
from quartet.errors import EngineError

MAX_ERROR_CHARACTERS = 500
KEEP_ALIVE_SECONDS = 1.0
"""Time after which the client closes an idle connection. A server would close the connection after 5 s, possibly during
a request."""
SMALL = aiohttp.ClientTimeout(total=5.0)
"""Time limit of questions that a server answers at once: its health, card and metrics."""

T = TypeVar("T")


class ServerRefusedError(EngineError):
    """The server responded with an error status."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


class Card(Struct, frozen=True):
    """One model that a server offers."""

    id: str
    max_model_len: int | None = None


class Cards(Struct, frozen=True):
    """Response of `GET /v1/models`."""

    data: list[Card]


class EchoLogprobs(Struct, frozen=True):
    token_logprobs: list[float | None]


class EchoChoice(Struct, frozen=True):
    logprobs: EchoLogprobs | None = None


class Echo(Struct, frozen=True):
    """Response of `POST /v1/completions` with `echo`: log-probs of the prompt, then of the sampled tokens."""

    choices: list[EchoChoice]


class InferenceServer:
    """One server. Every failure is an `EngineError` that names the route; nothing is retried."""

    def __init__(self, url: str, *, api_key: str = "", timeout_seconds: float = 600.0) -> None:
        """Open the HTTP session; requires a running event loop."""
        self.url, self.model = url.rstrip("/"), ""
        self._session = aiohttp.ClientSession(
            headers=bearer(api_key),
            # Read timeout between chunks; there is no total limit.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=timeout_seconds),
            # No limit: as many concurrent requests as the engine receives.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
        )

    async def close(self) -> None:
        await self._session.close()

    async def is_up(self) -> bool:
        """Return whether `GET /health` returns 200."""
        try:
            async with self._session.get(f"{self.url}/health", timeout=SMALL) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def card(self, model: str = "") -> Card:
        """Return the server's card of `model`, or of the first model that it lists. Later requests name this model."""
        cards = (await self.call("GET", "/v1/models", None, Cards, SMALL)).data
        found = next((card for card in cards if model in ("", card.id)), None)
        if found is None:
            raise EngineError(f"{self.url} serves no model {model!r}, only {', '.join(card.id for card in cards)}")
        self.model = found.id
        return found

    async def score(self, token_ids: list[int]) -> list[float]:
        """Return the log-probs `[num_tokens - 1]`, at temperature 1, of all tokens but the first."""
        body = {
            "model": self.model,
            "prompt": token_ids,
            "echo": True,
            "logprobs": 0,
            "max_tokens": 1,
            "temperature": 1.0,
        }
        choices = (await self.call("POST", "/v1/completions", body, Echo)).choices
        echoed = choices[0].logprobs.token_logprobs[1 : len(token_ids)] if choices and choices[0].logprobs else []
        scores = [score for score in echoed if score is not None]
        if len(scores) != len(token_ids) - 1:
            raise EngineError(f"{self.url}/v1/completions does not echo the log-probs of its prompt")
        return scores

    async def call(
        self, method: str, path: str, body: object, answer: type[T], timeout: aiohttp.ClientTimeout | None = None
    ) -> T:
        """Make one call, within the session's time limit if there is no other.

        Raises `ServerRefusedError` for an error status, `EngineError` for any other failure.
        """
        content = await self._read(method, path, body, timeout)
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise EngineError(f"{self.url}{path} sent an invalid response: {error}") from error

    async def text(self, path: str) -> str:
        """Return the text of a page. Raises the errors of `call`."""
        return (await self._read("GET", path, None, SMALL)).decode(errors="replace")

    async def _read(self, method: str, path: str, body: object, timeout: aiohttp.ClientTimeout | None) -> bytes:
        where, limit = f"{self.url}{path}", timeout or self._session.timeout
        try:
            async with self._session.request(method, where, timeout=limit, **_json(body)) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError(f"{where} does not answer: {type(error).__name__} {error}") from error
        _refuse_status(where, response.status, content)
        return content

    async def events(self, path: str, body: object) -> AsyncIterator[bytes]:
        """Yield the data of each server-sent event until `[DONE]`.

        Leaving early closes the connection, which aborts the request on the server.
        """
        where = f"{self.url}{path}"
        try:
            async with self._session.post(where, **_json(body)) as response:
                if response.status != 200:
                    _refuse_status(where, response.status, await response.read())
                async for data in _data(where, response):
                    yield data
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineError(f"{where}: the stream broke off: {type(error).__name__} {error}") from error


async def _data(where: str, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the data of each event until `[DONE]`."""
    async for line in _lines(response):
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        if data and data != line.strip():
            yield data
    raise EngineError(f"{where} ended its stream without [DONE]")


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the lines of a response. aiohttp's own reader refuses a long line, such as an event with a whole prompt."""
    begun: list[bytes] = []
    async for part in response.content.iter_any():
        first, *others = part.split(b"\n")
        begun.append(first)
        for following in others:
            yield b"".join(begun)
            begun = [following]
    yield b"".join(begun)


def _json(body: object) -> dict[str, Any]:
    if body is None:
        return {}
    return {"data": msgspec.json.encode(body), "headers": {"Content-Type": "application/json"}}


def _refuse_status(where: str, status: int, content: bytes) -> None:
    if status != 200:
        said = content.decode(errors="replace").strip()[:MAX_ERROR_CHARACTERS]
        raise ServerRefusedError(f"{where} answered {status}: {said}", status)
