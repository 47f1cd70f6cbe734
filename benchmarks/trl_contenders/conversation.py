"""Templates with which TRL reads and writes the policy's language: calls of a tool `click`, tool results, `done`.

The same conversation has the same token ids here and in Quartet: a tool's result is rendered like a user's message.
"""

from typing import Any

from transformers import PreTrainedTokenizerBase

from benchmarks.desk import Desk
from quartet.policy.prompt import turn_text

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "<|assistant|>{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}\n{{ call['function']['name'] }}"
    "{% for name, value in call['function']['arguments'].items() %} {{ name }} {{ value }}{% endfor %}"
    "{% endfor %}<|end|>"
    "{% else %}<|user|>{{ message['content'] }}<|end|>"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The policy's own template with roles for tools. TRL rejects a template that cannot render a tool call, although TRL
renders none: it keeps the sampled token ids."""

RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "\nclick ",
            "close_pattern": r"<\|end\|>|$",
            "content": "text",
            "transform": [{"type": "function", "function": {"name": "click", "arguments": {"element": "{content}"}}}],
        },
        "content": {"close_pattern": r"<\|end\|>|$", "content": "text"},
    },
}
"""Template for `tokenizer.parse_response`, with which TRL finds tool calls."""


def speak_tools(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Set both templates in the policy's tokenizer, and return it."""
    tokenizer.chat_template = CHAT_TEMPLATE
    settable: Any = tokenizer
    settable.response_template = RESPONSE_TEMPLATE
    return tokenizer


def page(desk: Desk, error: str = "") -> str:
    """Return the text that the policy reads, in the form of Quartet's loop `append`."""
    return turn_text(desk.observe(error), [])
