"""Rendering of messages to token ids, append-only: read or sampled text is never tokenized again.

A chat template is split once into the text before a user's text, the text between it and the response, and the text
between a response and the next user's text. After that only new text is tokenized; ids of prompts and responses are
kept.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quartet.errors import ConfigError
from quartet.policy.chat_template import ADVICE, ChatTemplate
from quartet.types import Message, Picture, Prompt, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from quartet.policy.kind.base import PictureProcessor

USER, ASSISTANT = "Press the first button.", "click first"
EXCHANGE = [Message("user", USER), Message("assistant", ASSISTANT)]


class Renderer:
    """Renderer of conversations to token ids for one tokenizer.

    Text never becomes a special token: a page that shows `<|end|>` cannot end a turn.
    """

    stop_token_ids: list[int]
    """Tokens that end a response: the template's end-of-turn token first, then the tokenizer's own."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", pictures: "PictureProcessor | None" = None) -> None:
        """Split the template. `pictures` writes the placeholders of a policy that reads pictures.

        Raise `ConfigError` if the template is missing or not append-only.
        """
        self._tokenizer, self._chat, self._pictures = tokenizer, ChatTemplate(tokenizer), pictures
        if not tokenizer.chat_template:
            raise ConfigError("the policy's tokenizer has no chat template", "add chat_template to its configuration")
        opening = self._chat.text(EXCHANGE[:1])
        head, found, generation = opening.partition(USER)
        continued = self._chat.text([*EXCHANGE, EXCHANGE[0]])
        separator = continued.removeprefix(opening + ASSISTANT).removesuffix(USER + generation)
        if not found or continued != opening + ASSISTANT + separator + USER + generation:
            raise ConfigError("the chat template is not append-only: a second turn changes the first", ADVICE)
        self._head_ids = self._chat.tokens(head, special=True)
        self._generation_ids = self._chat.tokens(generation, special=True)
        self._separator_ids = self._chat.tokens(separator, special=True)
        self.stop_token_ids = self._find_stop_tokens()
        self._verify()

    def start(self, user_text: str) -> list[int]:
        """Return the prompt of a conversation's first response."""
        return self.start_chat([Message("user", user_text)]).ids

    def start_chat(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), pictures: Sequence[Picture] = ()
    ) -> Prompt:
        """Return the prompt of the first response to messages of any roles.

        Pictures stand before the text of the last message; a policy that reads only text is shown none. Raise the
        errors of `ChatTemplate.prompt` and `PictureProcessor.prompt`.
        """
        shown = self._shown(pictures)
        if _is_text(messages) and not tools:
            return Prompt(self._head_ids) + shown + self._asked(messages[0].content)
        return self._chat.prompt([], messages, tools, shown)

    def extend(self, previous_ids: list[int], response_ids: list[int], user_text: str) -> list[int]:
        """Return the prompt of the next response: the conversation so far, unchanged, then the new message."""
        return self.extend_chat(Prompt(previous_ids), response_ids, [Message("user", user_text)]).ids

    def extend_chat(
        self,
        previous: Prompt,
        response_ids: list[int],
        messages: Sequence[Message],
        pictures: Sequence[Picture] = (),
    ) -> Prompt:
        """Extend the prompt like `extend`, with messages of any roles and pictures as in `start_chat`.

        A response that was cut off lacks its end token, which is then added to the prompt and so not trained.
        """
        shown = self._shown(pictures)
        if _is_text(messages):
            added = Prompt(self._separator_ids) + shown + self._asked(messages[0].content)
        else:
            added = self._chat.prompt(EXCHANGE, messages, (), shown)
        ended = response_ids[-1:] == self._separator_ids[:1] == added.ids[:1]
        return previous + Prompt(response_ids[:-1] if ended else response_ids) + added

    def response(self, text: str) -> list[int]:
        """Return the ids that a policy samples if it writes `text` and ends its turn."""
        return [*self._chat.tokens(text), self.stop_token_ids[0]]

    def decode(self, ids: list[int]) -> str:
        """Return the text of a response without special tokens."""
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def _asked(self, text: str) -> Prompt:
        """Return a user's text, and what stands between it and the response."""
        return Prompt([*self._chat.tokens(text), *self._generation_ids])

    def _shown(self, pictures: Sequence[Picture]) -> Prompt:
        parts = [self._pictures.prompt(picture.data) for picture in pictures] if self._pictures else []
        return sum(parts, Prompt([]))

    def _find_stop_tokens(self) -> list[int]:
        """Return the stop tokens. The separator's first token must end a turn, or generation would never stop."""
        own = self._tokenizer.eos_token_id
        own_ids = [own] if isinstance(own, int) else []
        if not self._separator_ids or self._separator_ids[0] not in [*own_ids, *self._tokenizer.all_special_ids]:
            raise ConfigError("the chat template has no end-of-turn token after a response", ADVICE)
        return list(dict.fromkeys([self._separator_ids[0], *own_ids]))

    def _verify(self) -> None:
        """Check that three turns, appended one by one, equal the ids of the whole conversation rendered at once."""
        response_ids = [*self._chat.tokens(ASSISTANT), self._separator_ids[0]]
        ids = self.start(USER)
        for _ in range(2):
            ids = self.extend(ids, response_ids, USER)
        if ids != self._chat.tokens(self._chat.text([*EXCHANGE, *EXCHANGE, EXCHANGE[0]]), special=True):
            raise ConfigError("the chat template is not append-only in tokens", ADVICE)


def _is_text(messages: Sequence[Message]) -> bool:
    """Return whether the messages are one user text, as in nearly all observations, which needs no template."""
    return len(messages) == 1 and messages[0].role == "user"
