"""Input and output of a scripted expert: a page parsed from the observation text, and action text.

An expert reads only what the policy reads: the lines of `Observation.text`, such as `input Username [5] = "bob"`. It
answers in the policy's action grammar, with every label exactly as printed.
"""

import re
from collections.abc import Iterable, Set

from msgspec import Struct

from quartet.errors import ExpertError

LINE = re.compile(r'(?P<kind>\w+)(?: (?P<label>.*?))? \[(?P<ref>\d+)\](?: = "(?P<value>.*)")?(?P<states>(?: \w+)*)')
"""One observation line: KIND LABEL [REF] = "VALUE" STATES; label, value and states may be missing."""


class Element(Struct, frozen=True, kw_only=True):
    """One visible element of the page."""

    kind: str
    label: str
    ref: int
    states: tuple[str, ...] = ()
    """States of the element, for example `("checked",)` or `("selected", "focused")`."""
    value: str = ""
    """Text of an input, or the chosen option of a closed select."""

    @property
    def target(self) -> str:
        """Text that names the element in an action: the label as printed, then the reference."""
        return f"{self.label} [{self.ref}]" if self.label else f"[{self.ref}]"


class Page(Struct, frozen=True):
    """Elements of one observation in printed order."""

    elements: list[Element]

    @classmethod
    def parse(cls, text: str) -> "Page":
        """Parse an observation's text. Raise `ExpertError` for a line that does not describe an element."""
        return cls([_parse_line(line) for line in text.splitlines() if line])

    @property
    def listing(self) -> str:
        """Text of all elements, for errors."""
        return "; ".join(f"{e.kind} {e.target}" for e in self.elements) or "no elements"

    def all(self, kind: str, label: str | Set[str] | None = None) -> list[Element]:
        """Return the elements of a kind. With `label`, return only elements with this label, or with one of a set."""
        labels = {label} if isinstance(label, str) else label
        return [e for e in self.elements if e.kind == kind and (labels is None or e.label in labels)]

    def find(self, kind: str, label: str | Set[str] | None = None, nth: int = 0) -> Element:
        """Return element `nth` (from 0) of `all(kind, label)`. Raise `ExpertError` if there are not enough."""
        found = self.all(kind, label)
        if nth >= len(found):
            labelled = f" with label {label!r}" if label is not None else ""
            raise ExpertError(
                f"the page has {len(found)} elements of kind {kind!r}{labelled}, but the expert needs number {nth + 1}"
                f"; all elements of the page: {self.listing}"
            )
        return found[nth]

    def has(self, kind: str, label: str | None = None) -> bool:
        return bool(self.all(kind, label))


def click(element: Element) -> str:
    return f"click {element.target}"


def drag(element: Element, target: Element) -> str:
    return f"drag {element.target} to {target.target}"


def point_at(element: Element) -> str:
    return f"move {element.target}"


def scroll(element: Element, direction: str, steps: int) -> str:
    return f"scroll {element.target} {direction} {steps}"


def ensure(element: Element, state: str) -> str | None:
    """Return a click on the element, or None if the element is already in this state."""
    return None if state in element.states else click(element)


def fill(element: Element, text: str) -> str | None:
    """Return an action that types the text, or None if the element already contains it."""
    return None if element.value == text else f'type {element.target} "{text}"'


def choose(element: Element, option: str) -> str | None:
    """Return an action that chooses an option of a closed select, or None if it is already chosen."""
    return None if element.value == option else f'select {element.target} "{option}"'


def first(steps: Iterable[str | None]) -> str | None:
    """Return the first step that is not None, or None. Later steps are not evaluated, since the page may not allow them
    yet."""
    return next((step for step in steps if step is not None), None)


def _parse_line(line: str) -> Element:
    match = LINE.fullmatch(line)
    if match is None:
        raise ExpertError(f"not an element line: {line!r}", "make this parser agree with the observation format")
    return Element(
        kind=match["kind"],
        label=match["label"] or "",
        ref=int(match["ref"]),
        states=tuple(match["states"].split()),
        value=match["value"] or "",
    )
