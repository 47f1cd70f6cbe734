"""A tokenizer's chat template, rendered so that text never becomes a special token: only the template's own is."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from quartet.errors import ConfigError, EnvError
from quartet.types import Message, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "quartet-message-{}-content"
"""Stands for the content of a message while the template is rendered; no template knows it."""
_MARKS = re.compile(_MARK.format(r"(\d+)"))


class ChatTemplate:
    """Renders conversations that are open for the next response."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer

    def text(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """Return the template's text. Raises `ConfigError` when it refuses these messages."""
        from jinja2 import TemplateError

        definitions: Any = msgspec.to_builtins(list(tools)) or None
        chat = [msgspec.to_builtins(message) for message in messages]
        try:
            rendered = self._tokenizer.apply_chat_template(
                chat, tools=definitions, add_generation_prompt=True, tokenize=False
            )
        except TemplateError as error:
            roles = ", ".join(message.role for message in messages)
            raise ConfigError(
                f"the policy's chat template refuses messages of the roles {roles}: {error}",
                "let the environment speak in roles that the template knows, or give the tokenizer another template",
            ) from error
        assert isinstance(rendered, str)
        return rendered

    def ids(self, before: Sequence[Message], messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Return what the template adds for `messages` behind a conversation of `before`, which ends with a response.

        Raises `ConfigError` when the template changes what stands before, or does not show each message once, and
        `EnvError` for the name or definition of a tool that holds a special token.
        """
        self._refuse_special_tokens(messages, tools)
        marked = [msgspec.structs.replace(one, content=_MARK.format(place)) for place, one in enumerate(messages)]
        whole = self.text([*before, *marked], tools)
        opening = self.text(before[:-1]) + before[-1].content if before else ""
        if not whole.startswith(opening):
            raise ConfigError("the chat template is not append-only: later messages change earlier ones", ADVICE)
        pieces = _MARKS.split(whole.removeprefix(opening))  # template, number of a message, template, ...
        if sorted(pieces[1::2], key=int) != [str(place) for place in range(len(messages))]:
            roles = ", ".join(message.role for message in messages)
            raise ConfigError(f"the chat template does not show each message of the roles {roles} once", ADVICE)
        found: list[int] = []
        for place, piece in enumerate(pieces):
            found += self.tokens(messages[int(piece)].content) if place % 2 else self.tokens(piece, special=True)
        return found

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text, in which special tokens are text unless it is the template's own."""
        return self._tokenizer(text, add_special_tokens=False, split_special_tokens=not special)["input_ids"]

    def _refuse_special_tokens(self, messages: Sequence[Message], tools: Sequence[Tool]) -> None:
        """The template writes names and definitions of tools itself, so their text cannot be told from its own."""
        texts = [message.name for message in messages if message.name]
        texts += [json.dumps(msgspec.to_builtins(list(tools)), ensure_ascii=False)] if tools else []
        for token in self._tokenizer.all_special_tokens:
            if any(token in text for text in texts):
                raise EnvError(f"the name or definition of a tool holds the special token {token}", "rename the tool")


ADVICE = "give the tokenizer a chat template that renders every turn the same, wherever it stands"
