"""Append-only rendering of messages to token ids: text that was read or sampled is not tokenized again.

A chat template is split once into three texts: before a user's text, between that and the response, and between a
response and the next user's text. Afterwards only new text is tokenized, and the ids of earlier prompts and responses
are kept. That includes the thought that some templates open before a response, and leave out of earlier ones.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from quartet.errors import ConfigError
from quartet.policy.chat_template import ADVICE, ChatTemplate, special_tokens
from quartet.types import Message, Picture, Prompt, Tool
from quartet.types.frame import Frame, Resized, Screen

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from quartet.policy.kind.base import PictureProcessor

USER, ASSISTANT = "Press the first button.", "click first"
EXCHANGE = [Message("user", USER), Message("assistant", ASSISTANT)]


class Renderer:
    """Renderer of conversations to token ids, for one tokenizer.

    Text of messages does not become special tokens, so a page that shows `<|end|>` cannot end a turn.
    """

    stop_token_ids: list[int]
    """Ids of the tokens that end a response: the template's end-of-turn token, then the tokenizer's end token, then
    those of the model."""
    opening_of_thought: str
    """Text such as `<think>` and a line break, with which the template begins only the next response; mostly empty."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        pictures: "PictureProcessor | None" = None,
        opening: Sequence[Message] = (),
        ends: Sequence[int] = (),
    ) -> None:
        """Split the template. `pictures` makes the placeholders for a policy that reads pictures. The messages of
        `opening`, such as instructions, begin every conversation. `ends` are further ids that end a response
        (`end_token_ids`); those of ordinary text are left out.

        Raise `ConfigError` if the template is missing or not append-only, or if it rejects the opening.
        """
        self._tokenizer, self._chat, self._pictures = tokenizer, ChatTemplate(tokenizer), pictures
        self._opening: list[Message] = []
        self._has_system_role = self._chat.has_system_role()
        if not tokenizer.chat_template:
            raise ConfigError("the policy's tokenizer has no chat template", "add chat_template to its configuration")
        head, found, generation = self._chat.text(EXCHANGE[:1]).partition(USER)
        continued = self._chat.text([*EXCHANGE, EXCHANGE[0]])
        before = self._chat.before_response(EXCHANGE, continued)
        separator = continued.removeprefix(before + ASSISTANT).removesuffix(USER + generation)
        if not found or continued != before + ASSISTANT + separator + USER + generation:
            raise ConfigError("the chat template is not append-only: a second turn changes the first", ADVICE)
        self._head_ids = self._chat.tokens(head, special=True)
        self._generation_ids = self._chat.tokens(generation, special=True)
        self._separator_ids = self._chat.tokens(separator, special=True)
        self.stop_token_ids = self._find_stop_tokens(ends)
        earlier = before.removeprefix(head + USER)
        self.opening_of_thought = generation.removeprefix(earlier)
        self._verify(earlier)
        if opening:
            self._opening = [*opening]
            self.start(USER)

    def start(self, user_text: str) -> list[int]:
        """Return the prompt for the first response of a conversation."""
        return self.start_chat([Message("user", user_text)]).ids

    def start_chat(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), pictures: Sequence[Picture] = ()
    ) -> Prompt:
        """Return the prompt for the first response to messages of any roles.

        Pictures are placed before the text of the last message; for a policy that reads only text they are left out.
        Raise the errors of `ChatTemplate.prompt` and `PictureProcessor.prompt`.
        """
        shown, messages = self._shown(pictures), self._begun(messages)
        if _is_text(messages) and not tools:
            return Prompt(self._head_ids) + shown + self._asked(messages[0].content)
        return self._chat.prompt([], messages, tools, shown)

    def extend(self, previous_ids: list[int], response_ids: list[int], user_text: str) -> list[int]:
        """Return the prompt for the next response: the ids of the conversation so far, then the new message."""
        return self.extend_chat(Prompt(previous_ids), response_ids, [Message("user", user_text)]).ids

    def extend_chat(
        self,
        previous: Prompt,
        response_ids: list[int],
        messages: Sequence[Message],
        pictures: Sequence[Picture] = (),
    ) -> Prompt:
        """Return the prompt for the next response, with messages of any roles, and pictures as in `start_chat`.
        Without messages, the next response follows the last one.

        A response that was cut off has no end token. The end token is then added as part of the prompt, so it is not
        trained.
        """
        shown = self._shown(pictures)
        if _is_text(messages):
            added = Prompt(self._separator_ids) + shown + self._asked(messages[0].content)
        else:
            added = self._chat.prompt(EXCHANGE, messages, (), shown)
        ended = response_ids[-1:] == self._separator_ids[:1] == added.ids[:1]
        return previous + Prompt(response_ids[:-1] if ended else response_ids) + added

    def as_template(self, prompt: Prompt, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Prompt:
        """Return `prompt` if its text is the template's text of these messages, and otherwise the template's own
        prompt, in which earlier responses are tokenized again.

        A response that contains the name of a special token is never tokenized again, since it would end a turn. Raise
        `ConfigError` for a prompt with pictures.
        """
        if prompt.media:
            raise ConfigError("prompts with pictures cannot be rendered again", 'set rollout.history = "interval"')
        if any(self._chat.has_special_token(one.content) for one in messages if one.role == "assistant"):
            return prompt
        text, ids = self._chat.whole(self._begun(messages), tools)
        shown = self._tokenizer.decode(prompt.ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return prompt if shown == text else Prompt(ids)

    def _begun(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages after the opening. Two of the system in a row become one, since many chat templates
        accept one only."""
        *before, last = self._opening or [Message("", "")]
        if self._has_system_role and messages and last.role == messages[0].role == "system":
            return [*before, Message("system", f"{last.content}\n\n{messages[0].content}"), *messages[1:]]
        return [*self._opening, *messages]

    def response(self, text: str) -> list[int]:
        """Return the ids that a policy samples if it writes `text` and then ends its turn. The opening of a thought,
        which the prompt has, is left out of them."""
        return [*self._chat.tokens(self.after_opening(text)), self.stop_token_ids[0]]

    def after_opening(self, text: str) -> str:
        """Return a response without the opening of a thought. If the line breaks after the opening are not those of the
        template, they are left out too."""
        opening, tag = self.opening_of_thought, self.opening_of_thought.strip()
        if text.startswith(opening) or not tag or not text.lstrip().startswith(tag):
            return text.removeprefix(opening)
        return text.lstrip().removeprefix(tag).lstrip()

    def decode(self, ids: list[int]) -> str:
        """Return the text of a response, without special tokens."""
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def picture_frame(self, pictures: Sequence[Picture]) -> Frame:
        """Return the coordinate frame of the last picture as the policy reads it, after resizing; that of the screen
        if the policy reads no picture."""
        if not pictures or self._pictures is None:
            return Screen()
        return Resized(*self._pictures.prompt(pictures[-1].data).media[0].resized)

    def without_pictures(self, prompt: Prompt, count: int) -> Prompt:
        """Return a prompt without its first `count` pictures. All ids that do not stand for them are kept."""
        before, after = self._pictures.marks if self._pictures else (0, 0)
        ids: list[int] = []
        end = 0
        for one in prompt.media[:count]:
            ids += prompt.ids[end : one.offset - before]
            end = one.offset + one.num_placeholders + after
        removed = end - len(ids)
        media = [replace(one, offset=one.offset - removed) for one in prompt.media[count:]]
        return Prompt([*ids, *prompt.ids[end:]], media, prompt.pictures)

    @property
    def shows_pictures(self) -> bool:
        """True if prompts show pictures, False for a policy that reads only text."""
        return self._pictures is not None

    def _asked(self, text: str) -> Prompt:
        """Return the ids of a user's text and of the template's text between this and the response."""
        return Prompt([*self._chat.tokens(text), *self._generation_ids])

    def _shown(self, pictures: Sequence[Picture]) -> Prompt:
        parts = [self._pictures.prompt(picture.data) for picture in pictures] if self._pictures else []
        return sum(parts, Prompt([]))

    def _find_stop_tokens(self, ends: Sequence[int]) -> list[int]:
        """Return the stop tokens.

        Raise `ConfigError` if the separator does not begin with a special token, since no token would end a response.
        """
        own = self._tokenizer.eos_token_id
        own_ids, special = [own] if isinstance(own, int) else [], special_tokens(self._tokenizer)
        if not self._separator_ids or self._separator_ids[0] not in [*own_ids, *special]:
            raise ConfigError("the chat template has no end-of-turn token after a response", ADVICE)
        return list(dict.fromkeys([self._separator_ids[0], *own_ids, *(one for one in ends if one in special)]))

    def _verify(self, before_response: str) -> None:
        """Check that three turns, appended one by one, have the same ids as the whole conversation rendered at once.

        `before_response` is the text between a user's text and an earlier response.
        """
        response_ids = [*self._chat.tokens(ASSISTANT), self._separator_ids[0]]
        opened = len(self._generation_ids) - len(self._chat.tokens(before_response, special=True))
        ids = self.start(USER)
        for _ in range(2):
            ids = self.extend(ids[: len(ids) - opened], response_ids, USER)
        if ids != self._chat.tokens(self._chat.text([*EXCHANGE, *EXCHANGE, EXCHANGE[0]]), special=True):
            raise ConfigError("the chat template is not append-only in tokens", ADVICE)


def _is_text(messages: Sequence[Message]) -> bool:
    """Return whether the messages are a single user message, which can be rendered without calling the template."""
    return len(messages) == 1 and messages[0].role == "user"
