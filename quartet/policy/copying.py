"""Copying exercises: the warm-up of a new policy, made of random tokens.

What a small policy must find before it can learn any task is one circuit: "where did this token stand before, and what
came after it?". Four exercises teach it directly. None has a fixed answer, so nothing can be learned by heart and the
skill holds for every word. They begin short and grow, because the circuit forms many times faster on short sequences:

- repeat: a random sequence, then the same sequence again;
- find: a goal that names one label, a page of random labels and references; the answer is that label and its reference;
- fill: the same with a field and, most of the time, a text for it, which is copied behind the reference, in quotes;
- follow: a goal that names several elements, fields among them; what was done already stands below the page, and the
  answer is the next. Each line of what was done was once the answer, and is learned as one.
"""

from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from quartet.policy.examples import Example, TokenBatch, pad
from quartet.policy.random_pages import Element, RandomPages
from quartet.policy.renderer import Renderer

MOST_STEPS = 12
"""At most so many things to do in a goal of `follow`."""
ERROR_CHANCE = 0.1
"""How often an error of the last action stands below what was done."""
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
    """Draws exercises for one tokenizer; the same seed draws the same ones. Kinds take turns."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        renderer = Renderer(tokenizer)
        empty, marked = renderer.start(""), renderer.start("@")
        head = next(place for place, (token, other) in enumerate(zip(empty, marked, strict=False)) if token != other)
        self._before, self._after = empty[:head], empty[head:]
        self._end = renderer.stop_token_ids[:1]
        self._rng = np.random.default_rng(seed)
        self._pages = RandomPages(tokenizer, self._rng)
        self._did, self._error = self._pages.ids("\ndid "), self._pages.ids("\nerror ")
        self._left_over: list[Example] = []
        self._kinds = cycle(PAGE_EXERCISES)
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
        """Exercises of the present level that take at most this many tokens when padded, or a single one.

        The one that no longer fits begins the next batch.
        """
        exercises = self._left_over
        while len(exercises) < 2 or len(exercises) * max(len(one.token_ids) for one in exercises) <= tokens:
            exercises.append(self.exercise(next(self._kinds) if LEVELS[self.level].most_elements else "repeat"))
        self._left_over = exercises[-1:]
        return exercises[:-1]

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
        return self._one_target(most_elements, field_chance=0.0)

    def _fill(self, most_elements: int) -> Example:
        return self._one_target(most_elements, field_chance=1.0)

    def _one_target(self, most_elements: int, field_chance: float) -> Example:
        self._pages.begin(most_elements)
        page, (target,) = self._pages.page(most_elements, field_chance=field_chance)
        goal = [*self._pages.noise(0, 6), *self._pages.goal(target, most_noise=6)]
        return self._example([*goal, *page], [], self._act(target))

    def _follow(self, most_elements: int) -> Example:
        self._pages.begin(most_elements)
        page, targets = self._pages.page(most_elements, MOST_STEPS)
        most_noise = int(self._rng.integers(2)) * 3
        goals = [self._pages.noise(0, 4), *(self._pages.goal(target, most_noise) for target in targets)]
        acts = [self._act(target) for target in targets]
        done = int(self._rng.integers(len(acts)))
        return self._example([*(token for goal in goals for token in goal), *page], acts[:done], acts[done])

    def _act(self, target: Element) -> list[int]:
        text = self._pages.quoted(target.text) if target.text else []
        return [*target.verb, *target.label, *target.reference, *text]

    def _example(self, question: list[int], done: list[list[int]], answer: list[int]) -> Example:
        """Learned are the answer, its end, and what was done before it, but not the error that sometimes follows it."""
        ids, learned = [*self._before, *question], [False] * (len(self._before) + len(question))
        for act in done:
            ids += [*self._did, *act]
            learned += [*[False] * len(self._did), *[True] * len(act)]
        if self._rng.random() < ERROR_CHANCE:
            ids += [*self._error, *self._pages.noise(1, 4)]
            learned += [False] * (len(ids) - len(learned))
        ids += [*self._after, *answer, *self._end]
        learned += [*[False] * len(self._after), *[True] * (len(answer) + len(self._end))]
        return Example(ids, learned)
