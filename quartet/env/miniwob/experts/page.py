"""Input and output of a scripted expert: a page parsed from the observation text, and action text.

An expert reads only what the policy reads: the lines of `Observation.text`, such as `input Username [5] = "bob"`. It
answers in the policy's action grammar, with every label exactly as printed.
"""

import re
from collections.abc import Iterable, Set

from msgspec import Struct

from quartet.errors import QuartetError

LINE = re.compile(r'(?P<kind>\w+)(?: (?P<label>.*?))? \[(?P<ref>\d+)\](?: = "(?P<value>.*)")?(?P<states>(?: \w+)*)')
"""One observation line: KIND LABEL [REF] = "VALUE" STATES; label, value and states may be missing."""


class ExpertError(QuartetError):
    """The page lacks what the expert needs: the observation, the expert or an earlier action is wrong."""


class Element(Struct, frozen=True, kw_only=True):
    """One visible element of the page."""

    kind: str
    label: str
    ref: int
    states: tuple[str, ...] = ()
    """For example `("checked",)` or `("selected", "focused")`."""
    value: str = ""
    """Text of an input, or the chosen option of a closed select."""

    @property
    def target(self) -> str:
        """The element in an action: label as printed, then the reference."""
        return f"{self.label} [{self.ref}]" if self.label else f"[{self.ref}]"


class Page(Struct, frozen=True):
    """Elements of one observation in printed order."""

    elements: list[Element]

    @classmethod
    def parse(cls, text: str) -> "Page":
        """Parse an observation's text. Raise `ExpertError` on a line that is no element."""
        return cls([_parse_line(line) for line in text.splitlines() if line])

    def all(self, kind: str, label: str | Set[str] | None = None) -> list[Element]:
        """Return the elements of a kind; with `label` only those with this label, or one of these."""
        labels = {label} if isinstance(label, str) else label
        return [e for e in self.elements if e.kind == kind and (labels is None or e.label in labels)]

    def find(self, kind: str, label: str | Set[str] | None = None, nth: int = 0) -> Element:
        """Return the nth (from 0) of `all(kind, label)`. Raise `ExpertError` if there are fewer."""
        found = self.all(kind, label)
        if nth >= len(found):
            listing = "; ".join(f"{e.kind} {e.target}" for e in self.elements)
            raise ExpertError(f"no {kind} {label or ''} number {nth + 1} on a page with {listing or 'nothing'}")
        return found[nth]

    def has(self, kind: str, label: str | None = None) -> bool:
        return bool(self.all(kind, label))


def click(element: Element) -> str:
    return f"click {element.target}"


def ensure(element: Element, state: str) -> str | None:
    """Click the element unless it is already in this state: None if nothing is left to do."""
    return None if state in element.states else click(element)


def fill(element: Element, text: str) -> str | None:
    """Type the text unless the element already holds it: None if nothing is left to do."""
    return None if element.value == text else f'type {element.target} "{text}"'


def choose(element: Element, option: str) -> str | None:
    """Choose an option of a closed select unless it is already chosen: None if nothing is left to do."""
    return None if element.value == option else f'select {element.target} "{option}"'


def first(steps: Iterable[str | None]) -> str | None:
    """Return the first step still to do, or None; lazy, since later steps may not be possible yet."""
    return next((step for step in steps if step is not None), None)


def _parse_line(line: str) -> Element:
    match = LINE.fullmatch(line)
    if match is None:
        raise ExpertError(f"not an element line: {line!r}", "the observation format and this parser must agree")
    return Element(
        kind=match["kind"],
        label=match["label"] or "",
        ref=int(match["ref"]),
        states=tuple(match["states"].split()),
        value=match["value"] or "",
    )
