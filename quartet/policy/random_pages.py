"""Random pages and texts in tokens: the matter of copying exercises, in the form that pages of an environment have."""

from itertools import pairwise
from string import ascii_letters, digits
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from quartet.policy.tokenizer import KINDS, MAX_REFERENCE, STATES

SHARED_WORD_CHANCE = 0.3
"""How often a label begins like the one before it, so that a look at one token is not enough."""
SPELT_CHANCE, FEW_ELEMENTS, LONGEST_SPELT, FEWEST_LETTERS = 0.5, 4, 9, 8
"""How often a label is a spelt word, once pages have more elements than a few: names and passwords are seldom tokens.
Letters are drawn from a few that the exercise chooses, so that they repeat; looking back one letter is not enough."""
NOT_ELEMENTS = ("did", "error")
"""Lines of a page that show no element."""
TYPED_STATE_CHANCE, STATE_CHANCE = 0.1, 0.25
"""How often an element shows what was typed into it, and how often any state at all."""


class Element(NamedTuple):
    label: list[int]
    reference: list[int]


class RandomPages:
    """Draws from a generator that it shares with its user."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> None:
        self._tokenizer, self._rng = tokenizer, rng
        self._references = [self.ids(f" [{number}]") for number in range(1, MAX_REFERENCE + 1)]
        self._openings = [self.ids(f"\n{kind} ") for kind in KINDS if kind not in NOT_ELEMENTS]
        self._states = [self.ids(f" {state}") for state in STATES]
        marks = (' "', '"', ' = "', " ", ",")
        self._open_quote, self._close_quote, self._is_quote, self._space, self._comma = map(self.ids, marks)
        taken = {token for piece in (*self._references, *self._openings) for token in piece}
        self._words = np.array(sorted(set(range(len(tokenizer))) - taken - set(tokenizer.all_special_ids)))
        self._alphabet = np.array([token for letter in ascii_letters + digits for token in self.ids(letter)])
        self._letters, self._spelt_chance = self._alphabet, 0.0

    def ids(self, text: str) -> list[int]:
        """Tokens of a fixed text."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def choose_letters(self, most_elements: int) -> None:
        """What spelt words of the next exercise are made of."""
        self._spelt_chance = SPELT_CHANCE if most_elements > FEW_ELEMENTS else 0.0
        count = int(self._rng.integers(FEWEST_LETTERS, len(self._alphabet) + 1))
        self._letters = self._rng.permutation(self._alphabet)[:count]

    def page(self, most_elements: int, most_targets: int = 1) -> tuple[list[int], list[Element]]:
        """The lines of a random page, references rising, and the elements that are to be found, in any order."""
        count = int(self._rng.integers(1, most_elements + 1))
        highest = min(MAX_REFERENCE, count * int(self._rng.integers(1, 5)))
        numbers = np.sort(self._rng.permutation(highest)[:count])
        elements = [Element(self._label(), self._references[number]) for number in numbers]
        for earlier, later in pairwise(elements):
            if self._rng.random() < SHARED_WORD_CHANCE:
                later.label[0] = earlier.label[0]
        lines = [
            [*self._pick(self._openings), *element.label, *element.reference, *self._state()] for element in elements
        ]
        targets = int(self._rng.integers(1, min(most_targets, count) + 1))
        chosen = [elements[index] for index in self._rng.permutation(count)[:targets]]
        return [token for line in lines for token in line], chosen

    def quoted_text(self) -> list[int]:
        """What is to be typed: one to three labels."""
        more = [token for _ in range(int(self._rng.integers(3))) for token in [*self._space, *self._label()]]
        return [*self._open_quote, *self._label(), *more, *self._close_quote]

    def named(self, label: list[int]) -> list[int]:
        """A label in the goal: in quotes, or after a space and before another or a comma."""
        chance = self._rng.random()
        if chance < 0.4:
            return [*self._open_quote, *label, *self._close_quote]
        return [*self._space, *label, *(self._comma if chance < 0.7 else self._space)]

    def words_between(self, shortest: int, longest: int) -> list[int]:
        """So many random words, single tokens all."""
        count = int(self._rng.integers(shortest, longest + 1))
        return self._words[self._rng.integers(len(self._words), size=count)].tolist()

    def _state(self) -> list[int]:
        """What may stand behind a reference: nothing, a word, or what was typed."""
        chance = self._rng.random()
        if chance < TYPED_STATE_CHANCE:
            return [*self._is_quote, *self._label(), *self._close_quote]
        return self._pick(self._states) if chance < STATE_CHANCE else []

    def _label(self) -> list[int]:
        """One to four words, now and then with a space inside, or one word letter by letter."""
        if self._rng.random() < self._spelt_chance:
            length = self._rng.integers(2, LONGEST_SPELT + 1)
            return self._letters[self._rng.integers(len(self._letters), size=length)].tolist()
        label = self.words_between(1, 3)
        return label if self._rng.random() < 0.5 else [*label, *self._space, *self.words_between(1, 1)]

    def _pick(self, pieces: list[list[int]]) -> list[int]:
        return pieces[int(self._rng.integers(len(pieces)))]
