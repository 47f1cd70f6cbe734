"""Templates with which TRL reads and writes the policy's language: calls of a tool `click`, tool results, `done`.

The same conversation has the same token ids here and in Quartet: a tool's result is rendered like a user's message, and
a call is a line of the response.
"""

import re
from typing import Any

from transformers import PreTrainedTokenizerBase

from benchmarks.desk import Desk
from quartet.policy.prompt import turn_text

AS_TEXT = (
    "{% set plain = namespace(messages=[]) %}"
    "{% for message in messages %}"
    "{% set said = namespace(text=message['content'] or '') %}"
    "{% for call in message['tool_calls'] or [] %}"
    "{% set said.text = said.text + '\n' + call['function']['name'] %}"
    "{% for name, value in call['function']['arguments'].items() %}"
    "{% set said.text = said.text + ' ' + name + ' ' + value %}"
    "{% endfor %}{% endfor %}"
    "{% set role = 'user' if message['role'] == 'tool' else message['role'] %}"
    "{% set plain.messages = plain.messages + [{'role': role, 'content': said.text}] %}"
    "{% endfor %}"
    "{% set messages = plain.messages %}"
)
"""Beginning of a chat template that turns tool calls and tool results into text, for the policy's own template after
it. TRL rejects a template that cannot render a tool call, although TRL renders none: it keeps the sampled token ids."""


def speak_tools(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Let the policy's tokenizer render and parse tool calls, and return it."""
    start = _rendered(tokenizer, [{"role": "user", "content": ""}], reply=True)
    start = start.removeprefix(_rendered(tokenizer, [{"role": "user", "content": ""}], reply=False))
    settable: Any = tokenizer
    settable.chat_template = f"{AS_TEXT}{tokenizer.chat_template}"
    settable.response_template = response_template(start, str(tokenizer.eos_token))
    return tokenizer


def response_template(start: str, end: str) -> dict[str, Any]:
    """Return the template for `tokenizer.parse_response`, with which TRL finds tool calls in a response."""
    close = rf"{re.escape(end)}|$"
    call = {"type": "function", "function": {"name": "click", "arguments": {"element": "{content}"}}}
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": start,
        "fields": {
            "tool_calls": {"open": "\nclick ", "close_pattern": close, "content": "text", "transform": [call]},
            "content": {"close_pattern": close, "content": "text"},
        },
    }


def opening(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of the first message, up to the start of the response."""
    return _ids(tokenizer, [{"role": "user", "content": text}], reply=True)


def between(tokenizer: Any, text: str) -> list[int]:
    """Return the ids between a response's end token and the next response: a message, and the response's start."""
    before = [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
    end = len(_ids(tokenizer, before, reply=False))
    ids = _ids(tokenizer, [*before, {"role": "user", "content": text}], reply=True)
    while ids[end - 1] != tokenizer.eos_token_id:  # some templates write a line break after the end token
        end -= 1
    return ids[end:]


def page(desk: Desk, error: str = "") -> str:
    """Return the text that the policy reads, in the form of Quartet's loop `append`."""
    return turn_text(desk.observe(error), [])


def _ids(tokenizer: Any, messages: list[dict[str, str]], *, reply: bool) -> list[int]:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=reply, return_dict=False)


def _rendered(tokenizer: Any, messages: list[dict[str, str]], *, reply: bool) -> str:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=reply, tokenize=False)
