"""Extraction of the answer from a response: all of it, the last number, the last `\\boxed{}`, or a pattern's match."""

import re
from collections.abc import Callable

NUMBER = re.compile(
    r"(?:(?<![\w.])[-+])?"  # in 7-3 the sign belongs to no number
    r"(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d{1,3}(?!\d))?(?:\s*/\s*\d+)?"
)
BLOCK = re.compile(
    r"^[ \t]*+```(?P<line>[^`\n]++)```[ \t\r]*+$"
    r"|(?:^[ \t]*+|(?<=[\s:])(?=`{3,}[\w+-]*+[ \t\r]*+\n))(?P<fence>`{3,}+)[^`\n]*+\n(?P<code>.*?)"
    r"(?:(?P<end>^[ \t]*+(?P=fence)(?!\w)|(?P=fence)[ \t\r]*+$)|\Z)",
    re.MULTILINE | re.DOTALL,
)
"""Block of code of a Markdown text, on a line of its own or of several lines; `end` is missing if it is cut off. Within
a line, backticks after a space or colon begin a block if at most the name of a language follows them."""


def last_number(text: str) -> str:
    """Return the last number or fraction without separators of thousands; empty if there is none.

    >>> last_number("3 apples cost $1,250.")
    '1250'
    """
    found = NUMBER.findall(text.replace("\N{MINUS SIGN}", "-"))
    return "".join(found[-1].replace(",", "").split()) if found else ""


def last_boxed(text: str) -> str:
    r"""Return the content of the last `\boxed{}`, whose braces are balanced; empty if there is none.

    >>> last_boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    _, found, rest = text.rpartition("\\boxed{")
    depth = 1
    for place, character in enumerate(rest if found else ""):
        depth += (character == "{") - (character == "}")
        if not depth:
            return rest[:place].strip()
    return ""


def unfenced(text: str) -> str:
    r"""Return the content of the last block of code of a Markdown text; the whole text if it has none.

    A block that is cut off at the end of the text counts only if the text has no other block.

    >>> unfenced('Here is ```{}```:\n```json\n{"a": 1}```')
    '{"a": 1}'
    """
    blocks = list(BLOCK.finditer(text))
    whole = [block for block in blocks if block["line"] or block["end"]]
    last = (whole or blocks or [None])[-1]
    return last["line"] or last["code"] if last else text


EXTRACTORS: dict[str, Callable[[str], str]] = {"text": str.strip, "number": last_number, "boxed": last_boxed}


def extract(how: str, response: str) -> str:
    """Return the answer in a response: by a name of `EXTRACTORS`, or by a pattern: its last match, or the first group
    of it. Empty if the response has no answer."""
    if how in EXTRACTORS:
        return EXTRACTORS[how](response)
    found = list(re.finditer(how, response))
    if not found:
        return ""
    return (found[-1][1] if found[-1].re.groups else found[-1][0]) or ""


def known_extractor(how: str) -> str:
    """Return a name of `EXTRACTORS` or a pattern. Raise `ValueError` for a pattern that is invalid."""
    try:
        re.compile("" if how in EXTRACTORS else how)
    except re.error as error:
        raise ValueError(
            f"{how!r} is not a regular expression: {error} -> write {', '.join(EXTRACTORS)} or a pattern"
        ) from error
    return how
