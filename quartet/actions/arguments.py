"""Arguments of tool calls that a policy writes as JSON."""

from typing import TypeVar

import msgspec

from quartet.actions.error import ActionError

T = TypeVar("T")


def storable(arguments: T) -> T:
    """Return the arguments of a call. Raise `ActionError` for an integer of more than 64 bits.

    JSON has such numbers; MessagePack, in which actions are recorded, has not. For one that no float can hold,
    `msgspec.convert` of versions before 0.22 raises `SystemError`.
    """
    try:
        msgspec.msgpack.encode(arguments)
    except OverflowError:
        raise ActionError("number too large") from None
    return arguments
