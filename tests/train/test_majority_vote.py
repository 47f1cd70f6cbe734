"""TTRL's credit: the majority's answer is the label, whatever the rewards say."""

import numpy as np
import pytest
from credit_cases import credit_of, credited, member
from msgspec.structs import replace
from tiny_batches import make_batch

from quartet.errors import ConfigError
from quartet.recipe.file import parse_recipe
from quartet.train.votes import agreement
from quartet.types import TakenAction, Text, Trajectory

MAJORITY_EAR = {"name": "ear", "labels": "majority"}


def voter(answer: str, reward: float = 0.0) -> Trajectory:
    trajectory = member(reward)
    action = TakenAction(action=Text(text=f"so {answer}"), canonical=answer)
    return replace(trajectory, turns=[replace(trajectory.turns[0], actions=[action])])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("aabc", [1, 1, 0, 0]),
        ("bbacd", [1, 1, 0, 0, 0]),
        ("abab", [1, 0, 1, 0]),
        (["", "", "a"], [0, 0, 1]),
        (["", ""], [0, 0]),
    ],
)
def test_the_most_frequent_answer_wins_and_no_answer_is_no_vote(answers, expected):
    assert agreement(np.array(list(answers))).tolist() == expected


def test_advantages_follow_the_votes_of_each_group_and_not_the_rewards():
    groups = [[voter("3"), voter("3"), voter("4", 1.0)], [voter("7", 1.0), voter("7", 1.0)]]
    seen = credited(credit_of("majority_vote"), make_batch(groups))
    deviation = np.std([1, 1, 0], ddof=1) + 1e-6
    expected_N = np.array([1 / 3, 1 / 3, -2 / 3, 0.0, 0.0]) / deviation
    np.testing.assert_allclose(seen.advantages_T, expected_N[seen.members_T])
    assert seen.metrics == {"vote_share": 4 / 5, "vote_reward": 2 / 4}


def test_roles_vote_apart():
    """Three solvers and three judges of one group: each role has a majority of two."""
    roles = [("3", "solver"), ("4", "solver"), ("yes", "judge"), ("3", "solver"), ("no", "judge"), ("yes", "judge")]
    group = [replace(voter(answer), role=role) for answer, role in roles]
    seen = credited(credit_of("majority_vote"), make_batch([group]))
    third = 1 / 3 / (np.std([1, 1, 0], ddof=1) + 1e-6)
    expected_N = np.array([third, -2 * third, third, third, -2 * third, third])
    np.testing.assert_allclose(seen.advantages_T, expected_N[seen.members_T])
    assert seen.metrics["vote_share"] == 4 / 6


def test_the_filter_of_equal_rewards_is_refused_and_a_data_set_needs_no_reward(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"prompt": "1"}\n')
    data = {"name": "x", "model": {"path": "/m"}, "env": {"name": "dataset", "data": str(tmp_path / "data.jsonl")}}
    with pytest.raises(ConfigError, match=r"mixed_outcome drops groups by rewards.*\n.*set filters"):
        parse_recipe(data | {"credit": "majority_vote"}, "test")
    assert parse_recipe(data | {"credit": "majority_vote", "filters": []}, "test").env.settings["reward"] == []
    for name in ("accuracy_band", "short_failures", "broken"):
        with pytest.raises(ConfigError, match=f"the filter {name} drops groups by rewards"):
            parse_recipe(data | {"credit": "majority_vote", "filters": [name]}, "test")
    assert parse_recipe(data | {"credit": MAJORITY_EAR, "filters": []}, "test").env.settings["reward"] == []
    for credit in ({"name": "ear"}, "grpo"):
        with pytest.raises(ConfigError, match=r"env\.reward is missing"):
            parse_recipe(data | {"credit": credit, "filters": []}, "test")
    data["env"]["reward"] = "exact_match"
    for credit in ("majority_vote", MAJORITY_EAR, {"name": "distillation", "teacher": "/t"}):
        for name in ("accuracy_band", "short_failures", "broken", "mixed_outcome"):
            with pytest.raises(ConfigError, match=f"the filter {name} drops groups by rewards"):
                parse_recipe(data | {"credit": credit, "filters": [name]}, "test")
        assert parse_recipe(data | {"credit": credit, "filters": ["overlong"]}, "test").filters
