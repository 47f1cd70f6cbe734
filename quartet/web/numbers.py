"""Numbers in addresses, which any client may write: a page receives only those that it can work with."""

import math
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request

LARGEST = 2**63 - 1
"""The databases know no larger integer."""
Natural = Annotated[int, Meta(ge=0, le=LARGEST)]
"""Kinds of numbers in addresses."""


class NaturalConvertor(Convertor[int]):
    """`{name:natural}` in a route: an integer from 0 on that a row could have. Raises 404 for a larger one."""

    regex = "[0-9]+"

    def convert(self, value: str) -> int:
        if len(value) > len(str(LARGEST)) or int(value) > LARGEST:
            raise HTTPException(404, f"nothing here has a number of {len(value)} digits")
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("natural", NaturalConvertor())


def read_natural(request: Request, name: str) -> int | None:
    """The integer of this name in the query; None where there is none. Raises 400 for what is none."""
    text = request.query_params.get(name)
    try:
        return msgspec.convert(text, Natural, strict=False) if text else None
    except msgspec.ValidationError as error:
        raise HTTPException(400, f"{name}={text!r} is no number: {error}") from error


def read_seconds(request: Request, name: str) -> float:
    """The finite number of seconds of this name in the query. Raises 400 for anything else, and where it is missing."""
    text = request.query_params.get(name, "")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise HTTPException(400, f"{name}={text!r} is no number of seconds")
    return seconds
