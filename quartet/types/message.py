"""Chat messages and tools of an environment, in the form that chat templates read."""

from typing import Any, Literal

from msgspec import Struct, field


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation."""

    role: str
    """Author of the message: `system`, `user`, `assistant` or `tool`. The policy's chat template must support the
    role."""
    content: str
    name: str | None = None
    """Name of the tool that the result is from; None for other messages."""


class Function(Struct, frozen=True, kw_only=True):
    """Name and parameters of a tool."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments."""


class Tool(Struct, frozen=True, kw_only=True):
    """A function that the policy may call."""

    function: Function
    type: Literal["function"] = "function"
