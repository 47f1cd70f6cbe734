"""The world `search`: answer a question with documents that queries find, one document per person."""

import random

from quartet.env.performing import ActionFailedError
from quartet.env.worlds.base import Line, Move, World

PEOPLE = ("gina", "hugo", "irene", "jonas", "karin", "louis", "marta", "niels")
THINGS = ("boat", "coat", "door", "scarf")
COLOURS = ("black", "brown", "green", "orange", "white", "yellow")
MAX_SHOWN = 20
"""Maximum length of a query in an error message."""


class Search(World):
    """The document of an easy task's person has the answer; that of a hard task's person names a friend, whose document
    names another friend, whose document has the answer.

    A wrong answer ends the episode without reward.
    """

    max_turns = 5

    def __init__(self, draw: random.Random, *, hard: bool) -> None:
        self._chain = draw.sample(PEOPLE, 3 if hard else 1)
        things = draw.sample(THINGS, 2)
        self._documents = {
            person: [f"{thing} {draw.choice(COLOURS)}" for thing in draw.sample(things, 2)] for person in PEOPLE
        }
        for person, friend in zip(self._chain, self._chain[1:], strict=False):
            self._documents[person] = [f"friend {friend}"]
        last = dict(text.split() for text in self._documents[self._chain[-1]])
        self._answer = last[things[0]]
        self._read = ""
        owner = "the friend of " * (len(self._chain) - 1) + self._chain[0]
        self.goal = f"Answer the colour of the {things[0]} of {owner}."

    def page(self) -> list[Line]:
        found = [Line("text", text) for text in self._documents[self._read]] if self._read else []
        return [Line("heading", self._read or "search"), *found, Line("input", "query"), Line("input", "answer")]

    def move(self, move: Move) -> bool | None:
        if move.name == "answer":
            return move.text == self._answer
        if move.text not in self._documents:
            raise ActionFailedError(f"no document about {str(move.text)[:MAX_SHOWN]}")
        self._read = move.text
        return None

    def right_move(self) -> Move:
        if self._read not in self._chain:
            return Move("query", self._chain[0])
        later = self._chain[self._chain.index(self._read) + 1 :]
        return Move("query", later[0]) if later else Move("answer", self._answer)
