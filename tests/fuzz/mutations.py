"""Strategies: valid input with something wrong in it."""

import json
from typing import Any

from hypothesis import strategies as st

NUMBERS = [0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1e300, -1e300, 1e-300, 0.5]
TEXTS = [
    "",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "\ud83d",
    "../../etc/passwd",
    "<script>",
    "%s%n",
    "'; --",
    "a" * 10_000,
    "NaN",
    "²",
]
JUNK = (
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.sampled_from(TEXTS)
    | st.text(st.characters(), max_size=12)
    | st.sampled_from([[], {}, [[]], [None], {"": {}}, [{}] * 3])
)
SPLICES = st.binary(max_size=8) | st.sampled_from(
    [
        b"\x00",
        b"\r\n",
        b"\n\n",
        b"[" * 5_000,
        b'{"a":' * 5_000,
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"1e999",
        b"NaN",
        b'"',
        b"}",
    ]
)


@st.composite
def mutated(draw: st.DrawFn, valid: Any) -> Any:
    """`valid` with some values replaced, left out, or added, at any depth."""
    if draw(st.integers(0, 9)) == 0:
        return draw(JUNK)
    if isinstance(valid, dict):
        kept = {name: draw(mutated(value)) for name, value in valid.items() if draw(st.integers(0, 19))}
        return kept | ({draw(st.sampled_from(TEXTS)): draw(JUNK)} if draw(st.integers(0, 9)) == 0 else {})
    if isinstance(valid, list):
        repeats = draw(st.sampled_from([1, 1, 1, 1, 0, 2]))
        return [draw(mutated(value)) for value in valid] * repeats
    return valid


@st.composite
def spliced(draw: st.DrawFn, valid: bytes, *, max_edits: int = 3) -> bytes:
    """`valid` with bytes overwritten, cut out or put in."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, max_edits))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.sampled_from([0, 0, 1, 2, 20]))] = draw(SPLICES)
    return bytes(data[: draw(st.sampled_from([len(data)] * 4 + [draw(st.integers(0, len(data)))]))])


def as_json(value: Any) -> bytes:
    """Also of what is no valid JSON: lone surrogates, NaN."""
    return json.dumps(value).encode()
