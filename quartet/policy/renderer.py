"""From messages to token ids, append-only: what the model has seen or said is never tokenized again.

A chat template is taken apart once, into what stands before a user's text, between it and the response, and between a
response and the next user's text. From then on only new text is tokenized; the ids of prompts and responses are kept.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quartet.errors import ConfigError
from quartet.policy.chat_template import ADVICE, ChatTemplate
from quartet.types import Message, Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

USER, ASSISTANT = "Press the first button.", "click first"
EXCHANGE = [Message("user", USER), Message("assistant", ASSISTANT)]


class Renderer:
    """Conversations as token ids for one tokenizer.

    Text never becomes a special token: a page that shows `<|end|>` cannot end a turn.
    """

    stop_token_ids: list[int]
    """Any of these ends a response: the template's end-of-turn token first, then the tokenizer's own."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        """Raises `ConfigError` when there is no chat template, or when it is not append-only."""
        self._tokenizer, self._chat = tokenizer, ChatTemplate(tokenizer)
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
        """Prompt of a conversation's first response."""
        return [*self._head_ids, *self._chat.tokens(user_text), *self._generation_ids]

    def start_chat(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """Prompt of the first response to messages of any roles. Raises as `ChatTemplate.ids` does."""
        if _is_text(messages) and not tools:
            return self.start(messages[0].content)
        return self._chat.ids([], messages, tools)

    def extend_chat(self, previous_ids: list[int], response_ids: list[int], messages: Sequence[Message]) -> list[int]:
        """As `extend`, with messages of any roles. Raises as `ChatTemplate.ids` does."""
        if _is_text(messages):
            return self.extend(previous_ids, response_ids, messages[0].content)
        added = self._chat.ids(EXCHANGE, messages)
        ended = response_ids[-1:] == self._separator_ids[:1] == added[:1]
        return [*previous_ids, *response_ids, *(added[1:] if ended else added)]

    def extend(self, previous_ids: list[int], response_ids: list[int], user_text: str) -> list[int]:
        """Prompt of the next response: everything so far, unchanged, then the new message.

        A response that was cut off lacks its end token; it is then added as part of the prompt, so it is not trained.
        """
        ended = response_ids[-1:] == self._separator_ids[:1]
        separator_ids = self._separator_ids[1:] if ended else self._separator_ids
        return [*previous_ids, *response_ids, *separator_ids, *self._chat.tokens(user_text), *self._generation_ids]

    def response(self, text: str) -> list[int]:
        """Ids of a response as a policy would sample it that wrote `text` and then ended its turn."""
        return [*self._chat.tokens(text), self.stop_token_ids[0]]

    def decode(self, ids: list[int]) -> str:
        """Text of a response without special tokens."""
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def _find_stop_tokens(self) -> list[int]:
        """The separator's first token must end a turn, or generation would never stop."""
        own = self._tokenizer.eos_token_id
        own_ids = [own] if isinstance(own, int) else []
        if not self._separator_ids or self._separator_ids[0] not in [*own_ids, *self._tokenizer.all_special_ids]:
            raise ConfigError("the chat template has no end-of-turn token after a response", ADVICE)
        return list(dict.fromkeys([self._separator_ids[0], *own_ids]))

    def _verify(self) -> None:
        """Three turns, grown one by one, must be the ids of the whole conversation rendered at once."""
        response_ids = [*self._chat.tokens(ASSISTANT), self._separator_ids[0]]
        ids = self.start(USER)
        for _ in range(2):
            ids = self.extend(ids, response_ids, USER)
        if ids != self._chat.tokens(self._chat.text([*EXCHANGE, *EXCHANGE, EXCHANGE[0]]), special=True):
            raise ConfigError("the chat template is not append-only in tokens", ADVICE)


def _is_text(messages: Sequence[Message]) -> bool:
    """Whether it is the one text of a user that nearly all observations are: no template is needed for it."""
    return len(messages) == 1 and messages[0].role == "user"
