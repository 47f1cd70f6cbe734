"""Chats: what people and other tools call fine-tuning data, one JSON object per line."""

from collections.abc import Iterator

import msgspec

from quartet.rollout.renderer import Renderer

FORM = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'


class Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class Chat(msgspec.Struct, frozen=True):
    """One line; other fields of the line are ignored."""

    messages: list[Message]


def exchanges(chat: Chat, renderer: Renderer) -> Iterator[tuple[list[int], list[int]]]:
    """Prompt and response ids of every answer, as a rollout would have recorded them.

    Raises `ValueError` unless user and assistant take turns, user first, assistant last.
    """
    roles = [message.role for message in chat.messages]
    if not roles or roles != ["user", "assistant"] * (len(roles) // 2):
        raise ValueError(f"roles must be user, assistant, user, assistant ..., not {', '.join(roles) or 'none'}")
    prompt: list[int] = []
    response: list[int] = []
    for user, assistant in zip(chat.messages[::2], chat.messages[1::2], strict=True):
        prompt = renderer.extend(prompt, response, user.content) if prompt else renderer.start(user.content)
        response = renderer.response(assistant.content)
        yield prompt, response
