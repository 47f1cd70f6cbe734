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
FEW_WORDS_CHANCE, FEWEST_WORDS, MOST_FEW_WORDS = 0.5, 12, 60
"""How often an exercise draws its words from a few, and from how many: they repeat then as those of real pages do."""
SPACED_CHANCE, SENTENCE_CHANCE, LONGEST_SENTENCE = 0.7, 0.4, 7
"""How often the words of a label have spaces between them, how often a text is a sentence, and its most words."""
OTHER_CASE_CHANCE = 0.25
"""How often the goal writes a label's words with the first letter in the other case: login, on a page with Login."""
NOT_ELEMENTS = ("did", "error")
"""Lines of a page that show no element."""
FIELD_VERBS = {"input": "type ", "select": "select ", "textarea": "type "}
"""Kinds of elements that take a text, and the verb that gives it to them. All others are clicked."""
FIELD_CHANCE, CLICKED_FIELD_CHANCE, QUOTED_CHANCE = 0.25, 0.2, 0.6
"""How often an element is such a field, how often that is only clicked, and how often a text stands in quotes."""
TYPED_STATE_CHANCE, STATE_CHANCE = 0.1, 0.25
"""How often an element shows what was typed into it, and how often any state at all."""


class Element(NamedTuple):
    opening: list[int]
    """Of its line: what kind it is."""
    label: list[int]
    reference: list[int]
    verb: list[int]
    """What is done to it."""
    text: list[int]
    """What is to be filled in, without quotes; empty where it is clicked."""


class RandomPages:
    """Draws from a generator that it shares with its user."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, rng: np.random.Generator) -> None:
        self._tokenizer, self._rng = tokenizer, rng
        self._references = [self.ids(f" [{number}]") for number in range(1, MAX_REFERENCE + 1)]
        lines = {kind: self.ids(f"\n{kind} ") for kind in KINDS}
        self._fields = [(lines[kind], self.ids(verb)) for kind, verb in FIELD_VERBS.items()]
        self._clicked = [line for kind, line in lines.items() if kind not in {*FIELD_VERBS, *NOT_ELEMENTS}]
        self._click = self.ids("click ")
        self._states = [self.ids(f" {state}") for state in STATES]
        marks = (' "', '"', ' = "', " ", ",", ".")
        self._open_quote, self._close_quote, self._is_quote, self._space, self._comma, self._stop = map(self.ids, marks)
        taken = {token for piece in (*self._references, *lines.values()) for token in piece}
        self._words = np.array(sorted(set(range(len(tokenizer))) - taken - set(tokenizer.all_special_ids)))
        self._alphabet = np.array([token for letter in ascii_letters + digits for token in self.ids(letter)])
        self._letters, self._spelt_chance, self._pool = self._alphabet, 0.0, self._words
        self._other_case = self._words_in_other_case()

    def ids(self, text: str) -> list[int]:
        """Tokens of a fixed text."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def begin(self, most_elements: int) -> None:
        """Choose the words of the next exercise, and the letters that its spelt words are made of."""
        few = int(self._rng.integers(FEWEST_WORDS, MOST_FEW_WORDS + 1))
        self._pool = self._rng.choice(self._words, few) if self._rng.random() < FEW_WORDS_CHANCE else self._words
        self._spelt_chance = SPELT_CHANCE if most_elements > FEW_ELEMENTS else 0.0
        count = int(self._rng.integers(FEWEST_LETTERS, len(self._alphabet) + 1))
        self._letters = self._rng.permutation(self._alphabet)[:count]

    def page(
        self, most_elements: int, most_targets: int = 1, field_chance: float = FIELD_CHANCE
    ) -> tuple[list[int], list[Element]]:
        """The lines of a random page, references rising, and the elements something is to be done to, in any order."""
        count = int(self._rng.integers(1, most_elements + 1))
        highest = min(MAX_REFERENCE, count * int(self._rng.integers(1, 5)))
        numbers = np.sort(self._rng.permutation(highest)[:count])
        targets = self._rng.permutation(count)[: int(self._rng.integers(1, min(most_targets, count) + 1))].tolist()
        chances = [field_chance if index in targets else FIELD_CHANCE for index in range(count)]
        elements = [self._element(number, chance) for number, chance in zip(numbers, chances, strict=True)]
        for earlier, later in pairwise(elements):
            if self._rng.random() < SHARED_WORD_CHANCE:
                later.label[0] = earlier.label[0]
        self._make_distinct([element.label for element in elements])
        lines = [[*element.opening, *element.label, *element.reference, *self._state()] for element in elements]
        return [token for line in lines for token in line], [elements[index] for index in targets]

    def goal(self, target: Element, most_noise: int) -> list[int]:
        """What a goal says about an element and the text for it, which stands in quotes or directly after the label."""
        named = self._named(target.label)
        if not target.text:
            return [*named, *self.noise(0, most_noise)]
        if self._rng.random() >= QUOTED_CHANCE:
            return [*named, *self._space, *target.text, *self._comma, *self.noise(0, most_noise)]
        parts = [named, self.quoted(target.text)]
        first, second = parts if self._rng.random() < 0.5 else reversed(parts)
        return [*first, *self.noise(0, most_noise), *second, *self.noise(0, most_noise)]

    def quoted(self, text: list[int]) -> list[int]:
        """As it stands in goals, and behind the reference in an action."""
        return [*self._open_quote, *text, *self._close_quote]

    def _named(self, label: list[int]) -> list[int]:
        """A label in the goal: in quotes, or after a space, perhaps before a comma; at times in other case."""
        if self._rng.random() < OTHER_CASE_CHANCE:
            label = [self._other_case.get(token, token) for token in label]
        chance = self._rng.random()
        if chance < 0.4:
            return [*self._open_quote, *label, *self._close_quote]
        return [*self._space, *label, *(self._comma if chance < 0.7 else [])]

    def noise(self, shortest: int, longest: int) -> list[int]:
        """So many random words of a goal, with spaces as text has them; of all words, lest they name an element."""
        count = int(self._rng.integers(shortest, longest + 1))
        return [token for word in self._rng.choice(self._words, count).tolist() for token in [*self._space, word]]

    def words_between(self, shortest: int, longest: int) -> list[int]:
        """So many random words, single tokens all."""
        count = int(self._rng.integers(shortest, longest + 1))
        return self._pool[self._rng.integers(len(self._pool), size=count)].tolist()

    def _element(self, number: int, field_chance: float) -> Element:
        label, reference = self._label(), self._references[number]
        if self._rng.random() >= field_chance:
            return Element(self._pick(self._clicked), label, reference, self._click, [])
        opening, verb = self._fields[int(self._rng.integers(len(self._fields)))]
        if field_chance < 1 and self._rng.random() < CLICKED_FIELD_CHANCE:
            return Element(opening, label, reference, self._click, [])
        return Element(opening, label, reference, verb, self._text())

    def _text(self) -> list[int]:
        """One to three labels, or a sentence."""
        if self._rng.random() < SENTENCE_CHANCE:
            sentence = self._spaced(self.words_between(2, LONGEST_SENTENCE))
            return [*sentence, *self._stop] if self._rng.random() < 0.5 else sentence
        more = [token for _ in range(int(self._rng.integers(3))) for token in [*self._space, *self._label()]]
        return [*self._label(), *more]

    def _state(self) -> list[int]:
        """What may stand behind a reference: nothing, a word, or what was typed."""
        chance = self._rng.random()
        if chance < TYPED_STATE_CHANCE:
            return [*self._is_quote, *self._label(), *self._close_quote]
        return self._pick(self._states) if chance < STATE_CHANCE else []

    def _label(self) -> list[int]:
        """One to four words, with spaces most of the time, or one word letter by letter."""
        if self._rng.random() < self._spelt_chance:
            length = self._rng.integers(2, LONGEST_SPELT + 1)
            return self._letters[self._rng.integers(len(self._letters), size=length)].tolist()
        words = self.words_between(1, 4)
        return self._spaced(words) if self._rng.random() < SPACED_CHANCE else words

    def _spaced(self, words: list[int]) -> list[int]:
        return [token for word in words for token in [*self._space, word]][len(self._space) :]

    def _make_distinct(self, labels: list[list[int]]) -> None:
        """Lengthen every label that equals an earlier one: which of two is meant could not be told."""
        seen: set[tuple[int, ...]] = set()
        for label in labels:
            while tuple(label) in seen:
                label.append(int(self._rng.choice(self._words)))
            seen.add(tuple(label))

    def _words_in_other_case(self) -> dict[int, int]:
        """`login` -> `Login` and back, where both are words. Single letters stay: names and passwords are spelt so."""
        texts = {int(token): str(self._tokenizer.decode([int(token)])) for token in self._words}
        tokens = {text: token for token, text in texts.items() if len(text) > 1}
        swapped = {token: text[0].swapcase() + text[1:] for text, token in tokens.items()}
        return {token: tokens[text] for token, text in swapped.items() if text in tokens and tokens[text] != token}

    def _pick(self, pieces: list[list[int]]) -> list[int]:
        return pieces[int(self._rng.integers(len(pieces)))]
