"""Copying exercises: the warm-up of a new policy, made of random tokens.

What a small policy must find before it can learn any task is one circuit: "where did this token stand before, and what
came after it?". Three exercises teach it directly. None has a fixed answer, so nothing can be learned by heart and the
skill holds for every word. They begin short and grow, because the circuit forms many times faster on short sequences:

- repeat: a random sequence, then the same sequence again;
- find: a goal that names one label, a page of random labels and references; the answer is that label and its reference;
- fill: the same with a text in quotes, which is copied behind the reference.
"""

from collections.abc import Iterator
from itertools import pairwise
from string import ascii_letters, digits
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from quartet.policy.examples import Example, TokenBatch, pad
from quartet.policy.tokenizer import KINDS, MAX_REFERENCE
from quartet.rollout.renderer import Renderer

SHARED_WORD_CHANCE = 0.3
"""How often a label begins like the one before it, so that a look at one token is not enough."""
SPELT_CHANCE, FEW_ELEMENTS = 0.4, 4
"""How often a page with more elements than a few is made of letters and digits, as passwords and numbers are."""
MASTERED_ACCURACY, ACCURACY_WEIGHT = 0.8, 0.1
"""A level is mastered when the running mean of the accuracy, in which a batch weighs this much, is above."""


class Level(NamedTuple):
    longest_period: int
    """Of the sequences in `repeat`."""
    most_elements: int
    """On the pages of `find` and `fill`; 0 leaves these exercises out."""


LEVELS = [
    *(Level(longest, 0) for longest in (4, 6, 9, 14)),
    *(Level(20, 2), Level(28, 4), Level(36, 8), Level(48, 16), Level(48, 24)),
]
"""Short sequences first: among few candidates the right one is found by chance often enough to learn from it. Starting
with the last level, a policy finds nothing within thousands of steps."""


class Element(NamedTuple):
    label: list[int]
    reference: list[int]


class CopyingExercises:
    """Draws exercises for one tokenizer; the same seed draws the same ones."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        def ids(text: str) -> list[int]:
            return tokenizer.encode(text, add_special_tokens=False)

        self._rng = np.random.default_rng(seed)
        renderer = Renderer(tokenizer)
        empty, marked = renderer.start(""), renderer.start("@")
        head = next(place for place, (token, other) in enumerate(zip(empty, marked, strict=False)) if token != other)
        self._before, self._after = empty[:head], empty[head:]
        self._end = renderer.stop_token_ids[:1]
        self._references = [ids(f" [{number}]") for number in range(1, MAX_REFERENCE + 1)]
        self._openings = [ids(f"\n{kind} ") for kind in KINDS]
        self._click, self._type = ids("click "), ids("type ")
        self.level, self._accuracy = 0, 0.0
        self._open_quote, self._close_quote, self._space = ids(' "'), ids('"'), ids(" ")
        taken = {token for piece in (*self._references, *self._openings) for token in piece}
        self._words = np.array(sorted(set(range(len(tokenizer))) - taken - set(tokenizer.all_special_ids)))
        self._letters = np.array([token for letter in ascii_letters + digits for token in ids(letter)])
        self._known = self._words

    def observe(self, accuracy: float) -> None:
        """How well the latest batch was answered; a level that is mastered gives way to the next."""
        self._accuracy += ACCURACY_WEIGHT * (accuracy - self._accuracy)
        if self._accuracy > MASTERED_ACCURACY and self.level + 1 < len(LEVELS):
            self.level += 1
            self._accuracy = 0.0

    def batches(self, steps: int, tokens_per_batch: int, pad_id: int) -> Iterator[TokenBatch]:
        """`steps` batches of the level reached by then."""
        for _ in range(steps):
            yield pad(self.draw(tokens_per_batch), pad_id)

    def draw(self, tokens: int) -> list[Example]:
        """Exercises of the present level, in equal parts, that take about this many tokens when padded."""
        level = LEVELS[self.level]
        kinds = [lambda: self._repeat(level.longest_period)]
        if level.most_elements:
            kinds += [lambda: self._find(level.most_elements), lambda: self._fill(level.most_elements)]
        exercises: list[Example] = []
        longest = 0
        while (len(exercises) + 1) * longest <= tokens:
            exercises.append(kinds[len(exercises) % len(kinds)]())
            longest = max(longest, len(exercises[-1].token_ids))
        return exercises[:-1] or exercises

    def _repeat(self, longest_period: int) -> Example:
        """Noise, then a sequence over and over; learned from its second round on."""
        self._known = self._words
        period = int(self._rng.integers(2, longest_period + 1))
        start = int(self._rng.integers(0, longest_period))
        noise, sequence = self._words_between(start, start), self._words_between(period, period)
        rounds = np.resize(sequence, 3 * longest_period - start).tolist()
        known = start + period + 1
        return Example([*noise, *rounds], [place >= known for place in range(3 * longest_period)])

    def _find(self, most_elements: int) -> Example:
        self._choose_words(most_elements)
        page, target = self._page(most_elements)
        goal = [*self._words_between(0, 8), *self._named(target.label), *self._words_between(0, 8)]
        return self._example([*goal, *page], [*self._click, *target.label, *target.reference])

    def _fill(self, most_elements: int) -> Example:
        self._choose_words(most_elements)
        page, target = self._page(most_elements)
        text = [*self._open_quote, *self._label(), *self._close_quote]
        parts = [text, self._named(target.label)]
        first, second = parts if self._rng.random() < 0.5 else reversed(parts)
        goal = [*self._words_between(0, 4), *first, *self._words_between(0, 4), *second, *self._words_between(0, 4)]
        answer = [*self._type, *target.label, *target.reference, *text]
        return self._example([*goal, *page], answer)

    def _page(self, most_elements: int) -> tuple[list[int], Element]:
        """The lines of a random page, references rising, and the element that is to be found."""
        count = int(self._rng.integers(1, most_elements + 1))
        highest = min(MAX_REFERENCE, count * int(self._rng.integers(1, 5)))
        numbers = np.sort(self._rng.permutation(highest)[:count])
        elements = [Element(self._label(), self._references[number]) for number in numbers]
        for earlier, later in pairwise(elements):
            if self._rng.random() < SHARED_WORD_CHANCE:
                later.label[0] = earlier.label[0]
        lines = [[*self._pick(self._openings), *element.label, *element.reference] for element in elements]
        return [token for line in lines for token in line], elements[int(self._rng.integers(count))]

    def _label(self) -> list[int]:
        """One to four tokens, now and then with a space inside."""
        label = self._words_between(1, 3)
        return label if self._rng.random() < 0.5 else [*label, *self._space, *self._words_between(1, 1)]

    def _named(self, label: list[int]) -> list[int]:
        """A label in the goal: after a space or in quotes."""
        if self._rng.random() < 0.5:
            return [*self._space, *label, *self._space]
        return [*self._open_quote, *label, *self._close_quote]

    def _words_between(self, shortest: int, longest: int) -> list[int]:
        count = int(self._rng.integers(shortest, longest + 1))
        return self._known[self._rng.integers(len(self._known), size=count)].tolist()

    def _choose_words(self, most_elements: int) -> None:
        """What the next page is made of: any words or, once pages are long, letters and digits, which repeat."""
        spelt = most_elements > FEW_ELEMENTS and self._rng.random() < SPELT_CHANCE
        self._known = self._letters if spelt else self._words

    def _pick(self, pieces: list[list[int]]) -> list[int]:
        return pieces[int(self._rng.integers(len(pieces)))]

    def _example(self, question: list[int], answer: list[int]) -> Example:
        prompt = [*self._before, *question, *self._after]
        response = [*answer, *self._end]
        return Example([*prompt, *response], [False] * len(prompt) + [True] * len(response))
