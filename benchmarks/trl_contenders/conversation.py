"""How TRL is told to read and write the policy's language: calls of a tool named `click`, its results, the final word.

The same conversation has the same token ids here and in Quartet: results of tools stand where users speak.
"""

from typing import Any

from transformers import PreTrainedTokenizerBase

from quartet.env.environment.desk import Desk
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
"""The policy's own template with roles for tools. TRL refuses one that cannot render a call, though it renders none:
what the policy said stays as its token ids."""

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
"""Read by `tokenizer.parse_response`, which TRL finds tool calls with."""


def speak_tools(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The policy's tokenizer with both templates."""
    tokenizer.chat_template = CHAT_TEMPLATE
    settable: Any = tokenizer
    settable.response_template = RESPONSE_TEMPLATE
    return tokenizer


def page(desk: Desk, error: str = "") -> str:
    """What the policy reads, as Quartet's loop `append` writes it."""
    return turn_text(desk.observe(error), [])
