"""Responses that begin a call of a tool in Quartet's grammar and cannot be read as one."""

import re

WRITE_CALL = 'write call NAME {"argument": "value"}'
"""Advice for such a response."""
_BEGINS = re.compile(r"^(?:[^\w(\[\n]|\d+[.)])*call(?:\s+[\w.-]+\s*(?:\{|$)|\s*$)", re.MULTILINE | re.IGNORECASE)


def begins_call(response: str) -> bool:
    """Return whether a line of a response begins as a call does, so that the response is no answer.

    >>> begins_call('- call sell {"item": "apple"'), begins_call("You should\\ncall the bank.")
    (True, False)
    """
    return _BEGINS.search(response) is not None
