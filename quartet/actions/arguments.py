"""Arguments of tool calls that a policy writes as JSON."""

from typing import Any

import msgspec

from quartet.actions.error import ActionError


def storable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call. Raise `ActionError` for an integer of more than 64 bits.

    JSON has such numbers; MessagePack, in which actions are recorded, has not.
    """
    try:
        msgspec.msgpack.encode(arguments)
    except OverflowError:
        raise ActionError("number too large") from None
    return arguments
