"""Rendering of a tokenizer's chat template. Only the template's own text can become special tokens."""

import json
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from quartet.errors import ConfigError, EnvError
from quartet.types import Message, Prompt, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "quartet-message-{}-content"
"""Placeholder for the content of a message while the template is rendered; no template contains it."""
_MARKS = re.compile(_MARK.format(r"(\d+)"))
_RESPONSE = _MARK.format("response")
"""Placeholder for the response that ends the earlier conversation, in the same way."""


class ChatTemplate:
    """Renderer of conversations as prompts for the next response."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer

    def has_system_role(self) -> bool:
        """Return whether the template shows a system's message, and otherwise than a user's, as those of chat models
        do. The template of the policies that Quartet makes has one role for both."""
        if not self._tokenizer.chat_template:
            return False
        system, question = _MARK.format(0), Message("user", _MARK.format(1))
        try:
            told = self.text([Message("system", system), question])
        except ConfigError:
            return False
        try:
            asked = self.text([Message("user", system), question])
        except ConfigError:
            asked = ""  # such a template lets roles alternate
        return system in told and told != asked

    def text(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> str:
        """Return the template's text. Raise `ConfigError` if it rejects these messages."""
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
                f"the policy's chat template rejects messages with the roles {roles}: {error}",
                "use roles in the environment that the template supports, or give the tokenizer another template",
            ) from error
        assert isinstance(rendered, str)
        return rendered

    def prompt(
        self, before: Sequence[Message], messages: Sequence[Message], tools: Sequence[Tool], shown: Prompt
    ) -> Prompt:
        """Return the ids that the template adds for `messages` after the conversation `before`, which is empty or ends
        with a response. `shown` (pictures) is inserted before the text of the last message. Without messages, the ids
        are those between a response and the next one.

        Raise `ConfigError` if the template changes the earlier text or does not render each message exactly once. Raise
        `EnvError` if the name or definition of a tool contains a special token.
        """
        self._refuse_special_tokens(messages, tools)
        marked = [msgspec.structs.replace(one, content=_MARK.format(place)) for place, one in enumerate(messages)]
        added = self._after_response(before, marked, tools) if before else self.text(marked, tools)
        pieces = _MARKS.split(added)  # template, number of a message, template, ...
        if sorted(pieces[1::2], key=int) != [str(place) for place in range(len(messages))]:
            roles = ", ".join(message.role for message in messages)
            raise ConfigError(
                f"the chat template leaves out or repeats a message (roles of the messages: {roles})", ADVICE
            )
        contents = [Prompt(self.tokens(message.content)) for message in messages]
        contents[-1:] = [shown + last for last in contents[-1:]]
        found = Prompt([])
        for place, piece in enumerate(pieces):
            found += contents[int(piece)] if place % 2 else Prompt(self.tokens(piece, special=True))
        return found

    def _after_response(self, before: Sequence[Message], messages: Sequence[Message], tools: Sequence[Tool]) -> str:
        """Return what the template writes after the response that ends `before`, with `messages` after that.

        A template may begin this response with an empty thought, as Qwen3.5's does in every response after the last
        message of a user. That is left out, since a response is kept as it was sampled. Raise `ConfigError` if the text
        before it changes, or if the response does not appear exactly once.
        """
        *asked, response = before
        earlier = self.text(asked).rpartition(asked[-1].content)[0]
        whole = self.text([*asked, msgspec.structs.replace(response, content=_RESPONSE), *messages], tools)
        opening, found, added = whole.partition(_RESPONSE)
        if not found or _RESPONSE in added or not opening.startswith(earlier + asked[-1].content):
            raise ConfigError("the chat template is not append-only: later messages change earlier ones", ADVICE)
        return added

    def before_response(self, exchange: Sequence[Message], whole: str) -> str:
        """Return the text before the response that ends `exchange`, as it stands at the beginning of `whole`, the text
        of a longer conversation.

        It lacks what a template adds only for generation, such as `<think>`.
        """
        asked = self.text(exchange[:-1])
        generation = asked.rpartition(exchange[-2].content)[2]
        equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(asked, whole, strict=False)))
        return asked[:equal] if equal >= len(asked) - len(generation) else asked

    def whole(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[str, list[int]]:
        """Return the template's text of a conversation, and its ids.

        The template reads the responses and may shorten them, so they must not contain special tokens
        (`has_special_token`); it does not read other messages. Raise `EnvError` as `prompt` does.
        """
        asked = [one for one in messages if one.role != "assistant"]
        self._refuse_special_tokens(asked, tools)
        marks = iter(_MARK.format(place) for place in range(len(asked)))
        marked = [
            one if one.role == "assistant" else msgspec.structs.replace(one, content=next(marks)) for one in messages
        ]
        pieces = _MARKS.split(self.text(marked, tools))
        for place in range(1, len(pieces), 2):
            pieces[place] = asked[int(pieces[place])].content
        parts = [self.tokens(piece, special=place % 2 == 0) for place, piece in enumerate(pieces)]
        return "".join(pieces), [token_id for part in parts for token_id in part]

    def has_special_token(self, text: str) -> bool:
        """Return whether a text contains the name of a special token."""
        return any(token in text for token in special_tokens(self._tokenizer).values())

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Return the ids of a text. Special tokens are recognised only with `special`, used for the template's text."""
        return self._tokenizer(text, add_special_tokens=False, split_special_tokens=not special)["input_ids"]

    def _refuse_special_tokens(self, messages: Sequence[Message], tools: Sequence[Tool]) -> None:
        """Raise `EnvError` if a tool contains a special token, since the template inserts tools into its own text."""
        texts = [message.name for message in messages if message.name]
        texts += [json.dumps(msgspec.to_builtins(list(tools)), ensure_ascii=False)] if tools else []
        for token in special_tokens(self._tokenizer).values():
            if any(token in text for text in texts):
                raise EnvError(
                    f"a tool's name or definition contains the special token {token}",
                    "remove the token from the tool's name, description and parameters",
                )


ADVICE = "give the tokenizer a chat template that renders a turn independently of its position"


def special_tokens(tokenizer: "PreTrainedTokenizerBase") -> dict[int, str]:
    """Return the special tokens by their ids, with those of the vocabulary that have no role, such as Phi-3's
    `<|end|>`."""
    named = zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
    return dict(named) | {place: one.content for place, one in tokenizer.added_tokens_decoder.items() if one.special}
