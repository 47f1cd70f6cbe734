"""Responses that begin a call of a tool in Quartet's grammar and cannot be read as one."""

import re

from quartet.types import Message, Observation, Outcome, StepResult, TakenAction

WRITE_CALL = 'write call NAME {"argument": "value"}'
"""Advice for such a response."""
_BEGINS = re.compile(r"^(?:[^\w(\[\n]|\d+[.)])*call(?:\s+[\w.-]+\s*(?:\{|$)|\s*$)", re.MULTILINE | re.IGNORECASE)


def refused_call(response: str, advice: str = WRITE_CALL) -> StepResult | None:
    """Return the answer to a response of which a line begins as a call does, so that it is no answer; None for any
    other response. The caller has found no call that can be read.

    >>> refused_call('- call sell {"item": "apple"').observation.messages[0].content
    'error: write call NAME {"argument": "value"}'
    >>> refused_call("You should\\ncall the bank.")
    """
    if _BEGINS.search(response) is None:
        return None
    return StepResult(
        observation=Observation(goal="", text="", messages=[Message("tool", f"error: {advice}")]),
        reward=0.0,
        terminated=False,
        actions=[TakenAction(outcome=Outcome.PARSE_ERROR, error=advice)],
    )
