"""The task of memory: its rewards, its answers in what both histories show, and its training tokens."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.learning_experiments.colours import BACK, QUESTION, RGB, SQUARES, Colours, Memory
from benchmarks.learning_experiments.history import INTERVAL, SLIDING, TURNS, Main, recipe_of
from quartet.policy.make_vision import make_vision_policy
from quartet.types import Task

COLOUR = {square: colour for colour, square in SQUARES.items()}


@pytest.mark.parametrize(("wrong", "share"), [(0, 1.0), (3, 0.5)])
async def test_each_right_answer_that_counts_is_rewarded_and_the_rewards_sum_to_their_share(
    wrong: int, share: float
) -> None:
    session, shown, rewards = Colours(BACK + 6), [], []
    observation = await session.reset(Task(env="colours", family="colours", seed=1))
    for turn in range(BACK + 6):
        shown.append(COLOUR[observation.pictures[0].data])
        right = shown[turn - BACK] if turn >= BACK else "anything"
        result = await session.step("none" if BACK <= turn < BACK + wrong else right)
        observation = result.observation
        rewards.append(result.reward)
        assert result.terminated == (turn == BACK + 5)
    assert rewards == [0.0] * (BACK + wrong) + [pytest.approx(1 / 6)] * (6 - wrong)
    assert sum(rewards) == pytest.approx(share)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arm", "branches"), [(INTERVAL, [14, TURNS]), (SLIDING, [BACK + 1, *range(BACK + 2, TURNS + 1)])]
)
async def test_both_histories_show_the_answer_and_train_the_tokens_of_their_branches(
    arm: str, branches: list[int], tmp_path: Path
) -> None:
    start = tmp_path / "start"
    make_vision_policy([QUESTION, *RGB] * 2, start, hidden_size=16, num_layers=1, max_pixels=2**10)
    memory = Memory(start, recipe_of(Main.settings(arm)), TURNS, tmp_path)
    groups = await memory.play([7], 2, taught=True)
    (first, _) = (member.trajectory for member in groups[0].members)
    assert first.reward == 1.0
    shown = Counter(len(call.media) for call in first.calls)
    assert max(shown) == (BACK + 1 if arm == SLIDING else 14)
    assert all(len(call.media) > BACK for call in first.calls[BACK:])
    await memory.train(groups)
    ids = [call.prompt_ids + call.response_ids for call in first.calls]
    assert memory.trained_tokens == 2 * sum(len(ids[last - 1]) for last in branches)
    (second,) = (group.members[0].trajectory for group in await memory.play([8], 1, taught=True))
    assert {version for call in second.calls for version in call.response.versions} == {1}, "of the trained policy"
    await memory.close()
