"""Questions to a judge: any model behind an OpenAI-compatible HTTP API."""

import asyncio
import logging
import os
import re
from typing import Annotated

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout
from pydantic import Field

from quartet.config.section import Positive, Section, ServerUrl
from quartet.errors import RewardError

LOG = logging.getLogger(__name__)
BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
"""HTTP statuses after which the question is asked again, until the reward's deadline."""
PAUSE_SECONDS = 0.5
NO_TIMEOUT = ClientTimeout(total=None)
"""Timeout of a request: none, since the reward's own limit cancels the call."""
_MARKS = re.compile(r"[*_`#>()\[\]\"]")


class JudgeSettings(Section):
    """Settings of rewards that ask a judge."""

    url: ServerUrl
    """Address of an OpenAI-compatible server, without /v1."""
    model: str
    """Name of the judge's model."""
    api_key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; without the variable no key is sent."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """Sampling temperature of the judge."""
    max_tokens: Positive = 512
    """Maximum length of the judge's answer, in tokens."""


class Judge:
    """Access to one judge. A busy or unreachable server is asked again until the call is cancelled."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        key = os.environ.get(settings.api_key_variable, "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    async def ask(self, question: str) -> str:
        """Return the judge's answer.

        Raise `RewardError` if the server rejects the question or its answer is not a chat completion.
        """
        async with ClientSession(headers=self._headers, timeout=NO_TIMEOUT) as http:
            while True:
                answer = await self._try(http, question)
                if answer is not None:
                    return answer
                await asyncio.sleep(PAUSE_SECONDS)

    async def _try(self, http: ClientSession, question: str) -> str | None:
        """Return the judge's answer, or None, with a warning, if the server is busy or does not respond."""
        settings = self._settings
        url = f"{settings.url.rstrip('/')}/v1/chat/completions"
        body = {
            "model": settings.model,
            "messages": [{"role": "user", "content": question}],
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
        }
        try:
            async with http.post(url, json=body) as answer:
                if answer.status not in BUSY:
                    return _content(answer.status, await answer.text())
                problem = f"HTTP status {answer.status}"
        except ClientError as error:
            problem = f"{type(error).__name__}: {error}"
        LOG.warning("judge %s at %s gave no answer: %s; retry in %g s", settings.model, url, problem, PAUSE_SECONDS)
        return None


def last_line(text: str) -> str:
    """Return the last line with more than marks, without marks of Markdown, brackets, quotes and a final point."""
    lines = (_MARKS.sub("", line).strip().rstrip(".") for line in reversed(text.splitlines()))
    return next(filter(None, lines), "")


def _content(status: int, text: str) -> str:
    """Return the message of a chat completion."""
    try:
        choice = msgspec.json.decode(text)["choices"][0]
        content, cut_off = choice["message"]["content"], choice.get("finish_reason") == "length"
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, AttributeError):
        content, cut_off = None, False
    if cut_off:
        raise RewardError(f"got an answer of its judge that is cut off: {content!r:.120}", "raise max_tokens")
    if status != 200 or not isinstance(content, str):
        raise RewardError(f"got no answer of its judge: HTTP status {status}, {text!r:.120}", "check url and model")
    return content
