"""Generated instructions: sub-goals that are drawn from the elements of a page, and judged by its text.

The page's own goal and reward are not used, so a policy can learn the elements of any page without a demonstration.
"""

import random
import string
from collections.abc import Iterator, Sequence
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from quartet.env.miniwob.experts.page import Element, Page
from quartet.errors import EnvError, ExpertError
from quartet.types import GENERATED, Observation, StepResult, Task

CHARACTERS = string.ascii_letters + string.digits
LENGTHS = range(2, 6)
"""Lengths of texts to enter."""
ENTERED = ("input", "textarea")
"""Kinds of elements that take a text."""


class Subgoal(Struct, frozen=True):
    """State of one element that the instruction asks for."""

    element: Element
    place: int
    """Number of the element among those of its kind and label, from 0."""
    text: str
    """Text that it should have; empty if it should be checked."""

    def __str__(self) -> str:
        name = self.element.label or f"{self.element.kind} {self.place + 1}"
        return f'enter "{self.text}" into {name}' if self.text else f"select {name}"

    def reached(self, page: Page) -> bool:
        """Return whether the page shows the state. An element that is gone does not."""
        alike = page.all(self.element.kind, self.element.label)
        if self.place >= len(alike):
            return False
        return alike[self.place].value == self.text if self.text else "checked" in alike[self.place].states


class Instruction(Struct, frozen=True):
    """An instruction of one or more sub-goals."""

    subgoals: list[Subgoal]

    @classmethod
    def drawn(cls, task: Task, seen: Observation) -> Self:
        """Draw the instruction of a task with the parameter `GENERATED`, its number of sub-goals; fewer if the page has
        no more elements. Raise `EnvError` if it has none."""
        draw = random.Random(task.key)
        found = list(_possible(Page.parse(seen.text).elements, draw))
        chosen = sorted(draw.sample(range(len(found)), min(int(task.params[GENERATED]), len(found))))
        if not chosen:
            raise EnvError(
                f"the page of {task.key} has no field to fill and no box to check",
                "leave its family out of the sampler's generated_families",
            )
        return cls([found[place] for place in chosen])

    @property
    def text(self) -> str:
        joined = ", then ".join(map(str, self.subgoals))
        return f"{joined[0].upper()}{joined[1:]}."

    def shown(self, seen: Observation) -> Observation:
        """Return the observation with this instruction as its goal."""
        return replace(seen, goal=self.text)

    def judged(self, result: StepResult) -> StepResult:
        """Return the result of a turn: the reward is 1 when all sub-goals are reached, which ends the episode."""
        try:
            page = Page.parse(result.observation.text)
        except ExpertError:  # a line of the page that no parser reads shows no element
            page = Page([])
        success = all(subgoal.reached(page) for subgoal in self.subgoals)
        return replace(
            result,
            observation=self.shown(result.observation),
            reward=float(success),
            terminated=success or result.terminated,
            info={"success": success, "reason": "generated instruction"},
        )


def _possible(elements: Sequence[Element], draw: random.Random) -> Iterator[Subgoal]:
    """Yield one sub-goal for each empty field, unchecked box, and for one of the radio buttons."""
    radios = [number for number, element in enumerate(elements) if element.kind == "radio" and not element.states]
    radio = draw.choice(radios) if radios else None
    for number, element in enumerate(elements):
        alike = [other for other in elements[:number] if (other.kind, other.label) == (element.kind, element.label)]
        if element.kind in ENTERED and not element.value:
            yield Subgoal(element, len(alike), "".join(draw.choices(CHARACTERS, k=draw.choice(LENGTHS))))
        elif number == radio or (element.kind == "checkbox" and "checked" not in element.states):
            yield Subgoal(element, len(alike), "")
