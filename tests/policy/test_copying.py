"""Copying exercises have one right answer, which stands in the prompt."""

from itertools import islice

import numpy as np
import pytest

from quartet.policy.examples import Example
from quartet.policy.load import LoadedPolicy
from quartet.policy.tokenizer import train_tokenizer
from recipes.miniwob.copying import LEVELS, MASTERED_ACCURACY, PAGE_EXERCISES, CopyingExercises
from recipes.miniwob.random_pages import Element, RandomPages


def split(example: Example) -> tuple[list[int], list[int]]:
    """Prompt and answer; the answer ends with the end token."""
    start = len(example.learned) - example.learned[::-1].index(False)
    return example.token_ids[:start], example.token_ids[start:]


def occurs(part: list[int], whole: list[int]) -> int:
    return sum(whole[start : start + len(part)] == part for start in range(len(whole) - len(part) + 1))


def at_level(policy: LoadedPolicy, level: int, seed: int = 3) -> CopyingExercises:
    exercises = CopyingExercises(policy.tokenizer, seed)
    exercises.level = level
    return exercises


def test_the_same_seed_draws_the_same(policy: LoadedPolicy):
    drawn = at_level(policy, 6).draw(4096)
    assert at_level(policy, 6).draw(4096) == drawn
    assert at_level(policy, 6, seed=4).draw(4096) != drawn


def test_repeated_sequences_are_learned_once_they_are_known(policy: LoadedPolicy):
    for ids, learned in at_level(policy, 0).draw(2048):
        first = learned.index(True)
        assert all(learned[first:])
        assert any(ids[first:] == ids[first - period : len(ids) - period] for period in range(2, first))


def test_answers_stand_in_the_prompt(policy: LoadedPolicy):
    def is_reference(token: int) -> bool:
        return str(policy.tokenizer.decode([token])).startswith(" [")

    filled = 0
    for exercise in at_level(policy, len(LEVELS) - 1).draw(40_000):
        prompt, answer = split(exercise)
        assert answer[-1] == policy.tokenizer.eos_token_id
        reference = next(place for place, token in enumerate(answer) if is_reference(token))
        assert occurs(answer[1 : reference + 1], prompt) == 1, "label and reference stand on one line"
        quoted_text = answer[reference + 1 : -1]
        filled += bool(quoted_text)
        assert not quoted_text or occurs(quoted_text[1:-1], prompt) >= 1
    assert filled > 20


def test_follow_goes_through_the_goal_in_order(policy: LoadedPolicy):
    tokenizer, followed, errors = policy.tokenizer, 0, 0
    for exercise in at_level(policy, len(LEVELS) - 1).draw(40_000):
        prompt, answer = split(exercise)
        if occurs(tokenizer.encode("\n", add_special_tokens=False), exercise.token_ids):
            continue  # a random word may be a line break: its lines cannot be told apart here
        goal, *page = str(tokenizer.decode(prompt)).replace("<|end|><|assistant|>", "").split("\n")
        acts = [line.removeprefix("did ") for line in page if line.startswith("did ")]
        error = [line for line in page if line.startswith("error ")]
        errors += len(error)
        below = [*(f"did {act}" for act in acts), *error]
        assert page[len(page) - len(below) :] == below, "what was done stands below the page, and then its error"
        labels = [act.split(" ", 1)[1].split(" [")[0] for act in [*acts, str(tokenizer.decode(answer))]]
        # A short label may stand anywhere by chance.
        places = [goal.lower().find(label.lower()) for label in labels if len(label) > 5]
        followed += len(places) > 1
        assert -1 not in places
        assert places == sorted(places)
    assert followed > 10 and errors > 0


def test_what_was_done_is_learned_as_the_answer_it_once_was(policy: LoadedPolicy):
    did = policy.tokenizer.encode("\ndid ", add_special_tokens=False)
    assert len(did) == 1
    done = 0
    for ids, learned in at_level(policy, len(LEVELS) - 1).draw(40_000):
        places = range(1, len(ids))
        begins = {place for place in places if learned[place] and not learned[place - 1]}
        after_did = {place for place in places if ids[place - 1] == did[0]}
        assert after_did == begins - {max(begins)}, "each line of what was done, and then the answer"
        done += len(after_did)
    assert done > 50


def test_kinds_take_turns_from_batch_to_batch(policy: LoadedPolicy, monkeypatch: pytest.MonkeyPatch):
    drawn: list[str] = []
    exercises = at_level(policy, len(LEVELS) - 1)
    exercise = exercises.exercise
    monkeypatch.setattr(exercises, "exercise", lambda kind: drawn.append(kind) or exercise(kind))
    taken = [len(exercises.draw(1)) for _ in range(7)]
    assert taken == [1] * 7
    assert drawn == [*PAGE_EXERCISES] * 2, "one more than taken: what no longer fitted begins the next batch"


def test_the_goal_may_write_a_word_in_the_other_case():
    tokenizer = train_tokenizer(["login Login"] * 2, vocab_size=600)
    pages = RandomPages(tokenizer, np.random.default_rng(3))
    click = pages.ids("click ")

    def written(label: str) -> set[str]:
        target = Element(pages.ids("\nbutton "), pages.ids(label), pages.ids(" [1]"), click, [])
        return {str(tokenizer.decode(pages.goal(target, most_noise=0))).strip(' ",') for _ in range(100)}

    assert len(pages.ids("login")) == 1
    assert written("login") == {"login", "Login"}
    assert written("aB") == {"aB"}, "names are spelt as they are"


def test_a_mastered_level_gives_way_to_the_next(policy: LoadedPolicy):
    exercises = CopyingExercises(policy.tokenizer, seed=3)
    for _ in range(100):
        exercises.observe(MASTERED_ACCURACY - 0.1)
    assert exercises.level == 0
    for _ in range(100 * len(LEVELS)):
        exercises.observe(1.0)
    assert exercises.level == len(LEVELS) - 1


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_batches_are_full(level: int, policy: LoadedPolicy):
    batches = list(islice(at_level(policy, level).batches(tokens_per_batch=4096, pad_id=0), 12))
    assert all(1024 < batch.ids_BT.numel() <= 4096 for batch in batches)
    assert all(batch.learned_BT.any(dim=1).all() for batch in batches)
