"""Chats: the common format of fine-tuning data, one JSON object per line."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from quartet.errors import ConfigError
from quartet.policy.renderer import Renderer
from quartet.types import Message, Prompt, Tool

FORM = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'
ANSWER = "assistant"
ROLES = {"system", "user", "tool", ANSWER}


class Chat(msgspec.Struct, frozen=True):
    """Chat in one line of a file; other fields of the line are ignored."""

    messages: list[Message]
    tools: list[Tool] | None = None
    unlearned: list[int] = msgspec.field(default_factory=list[int])
    """Numbers of the answers, from 0, that are read and not learned by `quartet sft`."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a chat, and the messages since the previous answer."""

    read: list[Message]
    said: str
    prompt_ids: list[int]
    response_ids: list[int]


def exchanges(chat: Chat, renderer: Renderer) -> Iterator[Exchange]:
    """Yield each answer of the chat, with the token ids that a rollout would have recorded.

    Raise `ValueError` for an unknown role, unless messages precede every answer and an answer ends the chat, and for an
    answer without the end of the thought that the chat template leaves open.
    """
    thought_end = _end_of_thought(renderer.opening_of_thought)
    read: list[Message] = []
    prompt: Prompt | None = None
    response: list[int] = []
    _check_roles([message.role for message in chat.messages])
    for message in chat.messages:
        if message.role != ANSWER:
            read.append(message)
            continue
        if thought_end not in message.content:
            raise ValueError(f"the chat template opens a thought, and an answer has no {thought_end}")
        prompt = renderer.extend_chat(prompt, response, read) if prompt else renderer.start_chat(read, chat.tools or ())
        response = renderer.response(message.content)
        yield Exchange(read=read, said=message.content, prompt_ids=prompt.ids, response_ids=response)
        read = []


def read_messages(path: Path) -> list[Message]:
    """Return the messages of all chats in a file, in order. Raise `ConfigError`, which names file and line, for a line
    that is not a chat."""
    if not path.is_file():
        raise ConfigError(f"no file at {path}", f"write one chat per line: {FORM}")
    messages: list[Message] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            chat = msgspec.json.decode(line, type=Chat)
            _check_roles([message.role for message in chat.messages])
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise ConfigError(f"{path}:{number}: {error}", f"write one chat per line: {FORM}") from error
        messages += chat.messages
    return messages


def _end_of_thought(opening: str) -> str:
    """Return the tag that ends the thought, or an empty text if the opening leaves no thought open.

    >>> _end_of_thought("<think>\\n"), _end_of_thought("<think>\\n\\n</think>\\n\\n")
    ('</think>', '')
    """
    _, found, after = opening.rpartition("<")
    name = after.partition(">")[0]
    return f"</{name}>" if found and not name.startswith("/") else ""


def _check_roles(roles: Sequence[str]) -> None:
    repeated = {before for before, after in pairwise(roles) if before == after}
    if not roles or roles[0] == ANSWER or roles[-1] != ANSWER or repeated & {"user", ANSWER}:
        raise ValueError(f"roles must be user, assistant, user, assistant ..., not {', '.join(roles) or 'none'}")
    if unknown := set(roles) - ROLES:
        raise ValueError(f"roles are {', '.join(sorted(ROLES))}, not {', '.join(sorted(unknown))}")
