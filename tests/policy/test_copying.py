"""Copying exercises have one right answer, which stands in the prompt."""

import pytest

from quartet.policy.copying import LEVELS, MASTERED_ACCURACY, CopyingExercises
from quartet.policy.examples import Example
from quartet.policy.load import LoadedPolicy


def split(example: Example) -> tuple[list[int], list[int]]:
    """Prompt and answer; the answer ends with the end token."""
    start = example.learned.index(True)
    assert all(example.learned[start:])
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


def test_find_and_fill_answer_with_what_stands_in_the_prompt(policy: LoadedPolicy):
    def is_reference(token: int) -> bool:
        return str(policy.tokenizer.decode([token])).startswith(" [")

    exercises = at_level(policy, len(LEVELS) - 1).draw(8192)
    for find, fill in zip(exercises[1::3], exercises[2::3], strict=False):
        prompt, answer = split(find)
        assert answer[-1] == policy.tokenizer.eos_token_id
        assert occurs(answer[1:-1], prompt) == 1, "label and reference stand on one line"
        prompt, answer = split(fill)
        reference = next(place for place, token in enumerate(answer) if is_reference(token))
        assert occurs(answer[1 : reference + 1], prompt) == 1
        assert occurs(answer[reference + 1 : -1], prompt) >= 1


def test_a_mastered_level_gives_way_to_the_next(policy: LoadedPolicy):
    exercises = CopyingExercises(policy.tokenizer, seed=3)
    for _ in range(100):
        exercises.observe(MASTERED_ACCURACY - 0.1)
    assert exercises.level == 0
    for _ in range(100 * len(LEVELS)):
        exercises.observe(1.0)
    assert exercises.level == len(LEVELS) - 1


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_batches_fit_and_end(level: int, policy: LoadedPolicy):
    batches = list(at_level(policy, level).batches(12, tokens_per_batch=512, pad_id=0))
    assert len(batches) == 12
    assert all(256 < batch.ids_BT.numel() <= 512 for batch in batches)
    assert all(batch.learned_BT.any(dim=1).all() for batch in batches)
