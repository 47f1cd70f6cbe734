"""Chats: the common format of fine-tuning data, one JSON object per line."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from quartet.errors import ConfigError, QuartetError
from quartet.policy.renderer import Renderer
from quartet.types import Message, Prompt, Tool

FORM = '{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'
ANSWER = "assistant"
ADVICE = "correct the chat, or give the tokenizer a chat template that accepts it"
ROLES = {"system", "user", "tool", ANSWER}
_ADVICE_AT = {
    "`$.messages[": 'give each message a role and a content, both as text: {"role": "user", "content": "..."}',
    "`$.tools": 'write a tool as {"type": "function", "function": {"name": "...", "description": "...", '
    '"parameters": {...}}}',
    "`$.unlearned": "list the numbers of the answers that are only read, from 0: [0, 2]",
}
"""Place of a wrong value in msgspec's error -> advice."""
Line = TypeVar("Line", bound="Chat")
Decoded = TypeVar("Decoded")


class ChatError(ConfigError):
    """A chat breaks a rule. Readers of files add the file and the line."""


class Chat(msgspec.Struct, frozen=True):
    """Chat in one line of a file; other fields of the line are ignored."""

    messages: list[Message]
    tools: list[Tool] | None = None
    unlearned: list[int] = msgspec.field(default_factory=list[int])
    """Numbers of the answers, from 0, that are read and not learned by `quartet sft`."""


class _Called(msgspec.Struct):
    """Calls of tools in a message, which OpenAI's API keeps outside the text."""

    tool_calls: Any = None
    function_call: Any = None


class _Calls(msgspec.Struct):
    """Calls of tools in a chat."""

    messages: list[_Called] = []


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a chat, and the messages since the previous answer."""

    read: list[Message]
    said: str
    prompt_ids: list[int]
    response_ids: list[int]


def decode_chat(line: bytes, kind: type[Line]) -> Line:
    """Return the chat in one line of a file.

    Raise `ChatError` for a call outside the text, which would be lost, for an empty answer that is learned, for a
    number in `unlearned` that no answer has, and for a wrong message, tool or number. Raise `msgspec.DecodeError` for a
    line that is not of type `kind` otherwise.
    """
    for message in _decoded(line, _Calls).messages:
        if message.tool_calls or message.function_call:
            raise ChatError(
                f"a message has {'tool_calls' if message.tool_calls else 'function_call'}, which would be lost",
                "write the call as text in content, in the format that the policy answers with",
            )
    chat = _decoded(line, kind)
    answers = [message.content for message in chat.messages if message.role == ANSWER]
    if missing := sorted({*chat.unlearned} - {*range(len(answers))}):
        raise ChatError(
            f"unlearned names answer {missing[0]}, but the chat has {len(answers)}, counted from 0",
            "remove the number from unlearned",
        )
    for number, answer in enumerate(answers):
        if not answer.strip() and number not in chat.unlearned:
            raise ChatError(f"answer {number} is empty", "write its text, or name its number in unlearned")
    return chat


def _decoded(line: bytes, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.ValidationError as error:
        for place, advice in _ADVICE_AT.items():
            if place in str(error):
                raise ChatError(str(error), advice) from error
        raise


def exchanges(chat: Chat, renderer: Renderer) -> Iterator[Exchange]:
    """Yield each answer of the chat, with the token ids that a rollout would have recorded.

    Raise `ChatError` for an unknown role, unless messages precede every answer and an answer ends the chat, and for an
    answer without the end of the thought that the chat template leaves open, or with its beginning again.
    """
    read: list[Message] = []
    prompt: Prompt | None = None
    response: list[int] = []
    _check_roles([message.role for message in chat.messages])
    for message in chat.messages:
        if message.role != ANSWER:
            read.append(message)
            continue
        _check_thought(renderer.opening_of_thought, renderer.after_opening(message.content))
        prompt = renderer.extend_chat(prompt, response, read) if prompt else renderer.start_chat(read, chat.tools or ())
        response = renderer.response(message.content)
        yield Exchange(read=read, said=message.content, prompt_ids=prompt.ids, response_ids=response)
        read = []


@contextmanager
def naming_line(path: Path, number: int) -> Iterator[None]:
    """Convert errors of a chat to `ConfigError`, which names file and line.

    A chat template that rejects a chat raises `QuartetError` with advice about environments.
    """
    try:
        yield
    except ChatError as error:
        raise ConfigError(f"{path}:{number}: {error.what}", error.advice) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{path}:{number}: {error}", f"write one chat per line: {FORM}") from error
    except QuartetError as error:
        raise ConfigError(f"{path}:{number}: {error.what}", ADVICE) from error


def read_messages(path: Path) -> list[Message]:
    """Return the messages of all chats in a file, in order. Raise `ConfigError`, which names file and line, for a line
    that is not a chat."""
    if not path.is_file():
        raise ConfigError(f"no file at {path}", f"write one chat per line: {FORM}")
    messages: list[Message] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        with naming_line(path, number):
            chat = decode_chat(line, Chat)
            _check_roles([message.role for message in chat.messages])
        messages += chat.messages
    return messages


def _check_thought(opening: str, said: str) -> None:
    """Raise `ChatError` unless the answer ends the thought that the template's opening leaves open, and for an answer
    that begins a thought again. `said` is the answer without the opening.

    >>> _check_thought("<think>\\n", "easy</think>4")
    >>> _check_thought("<think>\\n\\n</think>\\n\\n", "4")
    """
    begin = re.search(r"<([^<>/]+)>", opening)
    if begin is None:
        return
    end = f"</{begin[1]}>"
    thought, ended, _ = said.partition(end)
    is_open = end not in opening
    if is_open and not ended:
        raise ChatError(
            f"the chat template opens a thought, and an answer has no {end}",
            f"begin each answer with its thought and {end}",
        )
    if begin[0] in thought if is_open else said.lstrip().startswith(begin[0]):
        raise ChatError(
            f"the chat template writes {opening!r} before an answer, and an answer has {begin[0]} again",
            f"remove {begin[0]} from the answer" if is_open else "remove the thought from the answer",
        )


def _check_roles(roles: Sequence[str]) -> None:
    if unknown := set(roles) - ROLES:
        raise ChatError(
            f"{', '.join(map(repr, sorted(unknown)))} is not a role", f"the roles are {', '.join(sorted(ROLES))}"
        )
    repeated = {before for before, after in pairwise(roles) if before == after}
    if not roles or roles[0] == ANSWER or roles[-1] != ANSWER or repeated & {"user", ANSWER}:
        raise ChatError(
            f"roles must be user, assistant, user, assistant ..., not {', '.join(roles) or 'none'}",
            "begin with a message that is read, end with an answer, and join messages of the same role that follow "
            "each other",
        )
