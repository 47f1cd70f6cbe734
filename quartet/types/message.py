"""What an environment says in the words of a chat, and the tools that it offers. Both as chat templates read them."""

from typing import Any, Literal

from msgspec import Struct, field


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`, as far as the policy's chat template knows it."""
    content: str
    name: str | None = None
    """Of the tool whose result it is; None elsewhere."""


class Function(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """JSON Schema."""


class Tool(Struct, frozen=True, kw_only=True):
    """A function that the policy may call."""

    function: Function
    type: Literal["function"] = "function"
