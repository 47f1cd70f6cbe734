"""Copying exercises of random tokens, with which the training of a new policy begins.

Before a small policy can learn any task it must form an induction circuit: find an earlier occurrence of a token and
copy the tokens after it. Four exercises train this directly. Their answers are random, so the policy cannot memorise
them, and the skill applies to every word. The exercises are short at first, since the circuit forms many times faster
on short sequences, and become longer:

- repeat: a random sequence, then the same sequence again;
- find: a goal that names one label, and a page of random labels and references; the answer is the label and reference;
- fill: like `find`, but with a field and usually a text for it, which the answer copies after the reference, in quotes;
- follow: a goal that names several elements, including fields, a page, and the actions done so far; the answer is the
  next action. The actions done so far are learned too.
"""

from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from quartet.policy.examples import Example, TokenBatch, pad
from quartet.policy.renderer import Renderer

from .random_pages import Element, RandomPages

MOST_STEPS = 12
"""Maximum number of actions in a goal of `follow`."""
ERROR_CHANCE = 0.1
"""Probability that an exercise contains an error message after the actions."""
MASTERED_ACCURACY, ACCURACY_WEIGHT = 0.8, 0.3
"""A level is mastered once the exponential moving average of the batches' accuracy exceeds `MASTERED_ACCURACY`. Each
batch has the weight `ACCURACY_WEIGHT` in it."""


class Level(NamedTuple):
    longest_period: int = 0
    """Longest period of the sequences in `repeat`, which is the only exercise of the first levels."""
    most_elements: int = 0
    """Maximum number of elements on the pages of the other exercises."""


LEVELS = [
    *(Level(longest_period=longest) for longest in (4, 6, 9, 14, 20)),
    *(Level(most_elements=most) for most in (2, 4, 8, 16, 24)),
]
"""Levels of difficulty. With few candidates, a policy finds the right one by chance often enough to learn from it; a
policy that starts at the last level learns nothing within thousands of steps."""


PAGE_EXERCISES = ("find", "follow", "fill", "follow")
"""Exercises with pages, in the order in which they are repeated. `follow` is the hardest and therefore occurs twice."""


class CopyingExercises:
    """Generates exercises of alternating kinds for one tokenizer. The same seed gives the same exercises."""

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
        """Record the accuracy of the latest batch, and go to the next level if this one is mastered."""
        self._accuracy += ACCURACY_WEIGHT * (accuracy - self._accuracy)
        if self._accuracy > MASTERED_ACCURACY and self.level + 1 < len(LEVELS):
            self.level += 1
            self._accuracy = 0.0

    def batches(self, tokens_per_batch: int, pad_id: int) -> Iterator[TokenBatch]:
        """Yield batches of the current level, without end."""
        while True:
            yield pad(self.draw(tokens_per_batch), pad_id)

    def draw(self, tokens: int) -> list[Example]:
        """Draw exercises of the current level that have at most `tokens` tokens in total when padded, but at least one.

        The first exercise that does not fit begins the next batch.
        """
        exercises = self._left_over
        while len(exercises) < 2 or len(exercises) * max(len(one.token_ids) for one in exercises) <= tokens:
            exercises.append(self.exercise(next(self._kinds) if LEVELS[self.level].most_elements else "repeat"))
        self._left_over = exercises[-1:]
        return exercises[:-1]

    def exercise(self, kind: str) -> Example:
        """Draw one exercise of the current level."""
        kinds = {"repeat": self._repeat, "find": self._find, "fill": self._fill, "follow": self._follow}
        level = LEVELS[self.level]
        return kinds[kind](level.most_elements or level.longest_period)

    def _repeat(self, longest_period: int) -> Example:
        """Draw noise, then a sequence that is repeated; its tokens are learned from the second round on."""
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
        """Build an example. The answer, its end token and the earlier actions are learned; an error message is not."""
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
