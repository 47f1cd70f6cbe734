"""Copying exercises: the warm-up of a new policy, made of random tokens.

What a small policy must find before it can learn any task is one circuit: "where did this token stand before, and what
came after it?". Four exercises teach it directly. None has a fixed answer, so nothing can be learned by heart and the
skill holds for every word. They begin short and grow, because the circuit forms many times faster on short sequences:

- repeat: a random sequence, then the same sequence again;
- find: a goal that names one label, a page of random labels and references; the answer is that label and its reference;
- fill: the same with a text in quotes, which is copied behind the reference;
- follow: a goal that names several labels, some with a text, and lines that tell what was done; the answer is the next.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from quartet.policy.examples import Example, TokenBatch, pad
from quartet.policy.random_pages import RandomPages
from quartet.rollout.renderer import Renderer

MOST_STEPS, TYPED_CHANCE = 12, 0.25
"""Of a goal in `follow`: how many things to do, and how often one of them is to type."""
MASTERED_ACCURACY, ACCURACY_WEIGHT = 0.8, 0.3
"""A level is mastered when the running mean of the accuracy, in which a batch weighs this much, is above."""


class Level(NamedTuple):
    longest_period: int = 0
    """Of the sequences in `repeat`, the only exercise of the first levels."""
    most_elements: int = 0
    """On the pages of the other exercises."""


LEVELS = [
    *(Level(longest_period=longest) for longest in (4, 6, 9, 14, 20)),
    *(Level(most_elements=most) for most in (2, 4, 8, 16, 24)),
]
"""Short sequences first: among few candidates the right one is found by chance often enough to learn from it. Starting
with the last level, a policy finds nothing within thousands of steps."""


PAGE_EXERCISES = ("find", "follow", "fill", "follow")
"""In this order, over and over; `follow` is the hardest."""


class CopyingExercises:
    """Draws exercises for one tokenizer; the same seed draws the same ones."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        renderer = Renderer(tokenizer)
        empty, marked = renderer.start(""), renderer.start("@")
        head = next(place for place, (token, other) in enumerate(zip(empty, marked, strict=False)) if token != other)
        self._before, self._after = empty[:head], empty[head:]
        self._end = renderer.stop_token_ids[:1]
        self._rng = np.random.default_rng(seed)
        self._pages = RandomPages(tokenizer, self._rng)
        verbs = ("click ", "type ", "\ndid click ", "\ndid type ")
        self._click, self._type, self._did_click, self._did_type = map(self._pages.ids, verbs)
        self.level, self._accuracy = 0, 0.0

    def observe(self, accuracy: float) -> None:
        """How well the latest batch was answered; a level that is mastered gives way to the next."""
        self._accuracy += ACCURACY_WEIGHT * (accuracy - self._accuracy)
        if self._accuracy > MASTERED_ACCURACY and self.level + 1 < len(LEVELS):
            self.level += 1
            self._accuracy = 0.0

    def batches(self, tokens_per_batch: int, pad_id: int) -> Iterator[TokenBatch]:
        """Without end, each of the level reached by then."""
        while True:
            yield pad(self.draw(tokens_per_batch), pad_id)

    def draw(self, tokens: int) -> list[Example]:
        """Exercises of the present level that take about this many tokens when padded; kinds take turns.

        Every batch begins with the first kind, so the last one is rarer where a batch holds only a few.
        """
        kinds = PAGE_EXERCISES if LEVELS[self.level].most_elements else ("repeat",)
        exercises: list[Example] = []
        longest = 0
        while (len(exercises) + 1) * longest <= tokens:
            exercises.append(self.exercise(kinds[len(exercises) % len(kinds)]))
            longest = max(longest, len(exercises[-1].token_ids))
        return exercises[:-1] or exercises

    def exercise(self, kind: str) -> Example:
        """One exercise of the present level."""
        kinds = {"repeat": self._repeat, "find": self._find, "fill": self._fill, "follow": self._follow}
        level = LEVELS[self.level]
        return kinds[kind](level.most_elements or level.longest_period)

    def _repeat(self, longest_period: int) -> Example:
        """Noise, then a sequence over and over; learned from its second round on."""
        period = int(self._rng.integers(2, longest_period + 1))
        start = int(self._rng.integers(0, longest_period))
        noise, sequence = self._pages.words_between(start, start), self._pages.words_between(period, period)
        rounds = np.resize(sequence, 3 * longest_period - start).tolist()
        known = start + period + 1
        return Example([*noise, *rounds], [place >= known for place in range(3 * longest_period)])

    def _find(self, most_elements: int) -> Example:
        self._pages.choose_letters(most_elements)
        page, (target,) = self._pages.page(most_elements)
        goal = [*self._pages.words_between(0, 8), *self._pages.named(target.label), *self._pages.words_between(0, 8)]
        return self._example([*goal, *page], [*self._click, *target.label, *target.reference])

    def _fill(self, most_elements: int) -> Example:
        self._pages.choose_letters(most_elements)
        page, (target,) = self._pages.page(most_elements)
        text = self._pages.quoted_text()
        parts = [text, self._pages.named(target.label)]
        first, second = parts if self._rng.random() < 0.5 else reversed(parts)
        goal = [
            *self._pages.words_between(0, 4),
            *first,
            *self._pages.words_between(0, 4),
            *second,
            *self._pages.words_between(0, 4),
        ]
        answer = [*self._type, *target.label, *target.reference, *text]
        return self._example([*goal, *page], answer)

    def _follow(self, most_elements: int) -> Example:
        self._pages.choose_letters(most_elements)
        page, targets = self._pages.page(most_elements, MOST_STEPS)
        most_noise = int(self._rng.integers(2)) * 3
        goal, acts = self._pages.words_between(0, 4), []
        for target in targets:
            text = self._pages.quoted_text() if self._rng.random() < TYPED_CHANCE else []
            parts = [self._pages.named(target.label), text]
            first, second = parts if self._rng.random() < 0.5 else reversed(parts)
            goal += [
                *first,
                *self._pages.words_between(0, most_noise),
                *second,
                *self._pages.words_between(0, most_noise),
            ]
            acts.append((text, [*target.label, *target.reference, *text]))
        done = int(self._rng.integers(len(acts)))
        for text, act in acts[:done]:
            goal += [*(self._did_type if text else self._did_click), *act]
        text, act = acts[done]
        return self._example([*goal, *page], [*(self._type if text else self._click), *act])

    def _example(self, question: list[int], answer: list[int]) -> Example:
        prompt = [*self._before, *question, *self._after]
        response = [*answer, *self._end]
        return Example([*prompt, *response], [False] * len(prompt) + [True] * len(response))
