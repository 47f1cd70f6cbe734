"""Credits of turns and of roles, worked out by hand."""

import numpy as np
import pytest
from credit_cases import credit_of, credited, member, of_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import make_batch

from quartet.config import Credit
from quartet.types import Trajectory

HALF = np.sqrt(0.5)


def test_reinforce_discounts_per_call() -> None:
    group = [member(1.0, 2.0, 4.0, beside=8.0)]
    assert of_calls(Credit(name="reinforce"), group) == [[15.0, 14.0, 12.0]]
    assert of_calls(credit_of("reinforce", discount=0.5), group) == [[1 + 1 + 3, 2 + 6, 12]]
    assert of_calls(credit_of("reinforce", discount=0), group) == [[1, 2, 12]]
    seen = credited(credit_of("reinforce", discount=0.5), make_batch([group]))
    assert seen.returns_T.tolist() == seen.advantages_T.tolist()


def test_ui_s1_adds_the_episode_s_advantage_to_the_turn_s() -> None:
    """Rewards 1 0 | 0 1, discount 0.5: returns 1 0 | 0.5 1, so the first turns differ by 0.5 and the last ones by -1;
    both episodes have 1. Two values normalise to plus and minus sqrt(1/2)."""
    group = [member(1.0, 0.0), member(0.0, 1.0)]
    first, second = of_calls(Credit(name="ui_s1"), group)
    assert first == pytest.approx([HALF, -HALF], abs=1e-5) and second == pytest.approx([-HALF, HALF], abs=1e-5)
    better = [member(1.0, 1.0), member(0.0, 1.0)]
    first, _ = of_calls(Credit(name="ui_s1"), better)
    assert first == pytest.approx([2 * HALF, HALF], abs=1e-5)
    first, _ = of_calls(credit_of("ui_s1", turn_weight=3, episode_weight=0.5), better)
    assert first == pytest.approx([3.5 * HALF, 0.5 * HALF], abs=1e-5)
    first, _ = of_calls(credit_of("ui_s1", episode_weight=0), better)
    assert first == pytest.approx([HALF, 0.0], abs=1e-5)


def test_ui_s1_gives_a_turn_that_one_rollout_reached_the_episode_s_advantage() -> None:
    long, short = of_calls(Credit(name="ui_s1"), [member(0.0, 0.0, 1.0), member(0.0)])
    assert long == pytest.approx([2 * HALF, HALF, HALF], abs=1e-5) and short == pytest.approx([-2 * HALF], abs=1e-5)


def test_ui_s1_counts_a_long_rollout_once_in_the_episode_s_baseline() -> None:
    """The released code averages over calls: 3 of 4 would be failures."""
    short, _ = of_calls(credit_of("ui_s1", turn_weight=1e-9), [member(1.0), member(0.0, 0.0, 0.0)])
    assert short == pytest.approx([HALF], abs=1e-5)


def game(*results: float) -> list[Trajectory]:
    """Rollouts of a zero-sum game: one trajectory of two turns per player."""
    players = [("x", 1), ("o", -1)]
    return [member(0.0, sign * result, role=role) for role, sign in players for result in results]


@pytest.mark.parametrize("name", ["mars", "grpo_roles", "dr_mas"])
def test_a_role_that_mostly_wins_has_a_baseline_of_its_own(name: str) -> None:
    """The first player wins 3 of 4. Against one baseline of 0 each win would look good; against its role's, little."""
    found = np.array([calls[-1] for calls in of_calls(Credit(name=name), game(1, 1, 1, -1))])
    assert found[:4].sum() == pytest.approx(0, abs=1e-6) and found[4:].sum() == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(found[4:], -found[:4], atol=1e-6)
    assert found[3] == pytest.approx(-3 * found[0])


@pytest.mark.parametrize("name", ["mars", "grpo_roles", "dr_mas"])
def test_names_of_roles_do_not_matter(name: str) -> None:
    players = game(1, 1, -1, 0.5)
    swapped = [member(*[turn.reward for turn in one.turns], role="ox"["ox".index(one.role) - 1]) for one in players]
    assert of_calls(Credit(name=name), swapped) == of_calls(Credit(name=name), players)


def test_mars_tells_turns_of_a_rollout_apart() -> None:
    """Returns 1 1 | -1 -1 in the first game; with 1 for the first turn of the first rollout 2 1 | -1 -1."""
    plain, _ = of_calls(Credit(name="mars"), [member(0.0, 1.0), member(0.0, -1.0)])
    assert plain[0] == plain[1] > 0
    returns = np.array([2.0, 1.0, -1.0, -1.0])
    centred = returns - returns.mean()
    shaped = of_calls(Credit(name="mars"), [member(1.0, 1.0), member(0.0, -1.0)])
    np.testing.assert_allclose(np.concatenate(shaped), centred / centred.std(ddof=1), atol=1e-6)


def test_dr_mas_counts_calls_and_grpo_roles_rollouts() -> None:
    """Rewards 1 and 0 over one call and three: mean 1/4 over calls, 1/2 over rollouts."""
    group = [member(1.0), member(0.0, 0.0, 0.0)]
    assert [calls[0] for calls in of_calls(Credit(name="dr_mas"), group)] == pytest.approx([1.5, -0.5], abs=1e-5)
    assert [calls[0] for calls in of_calls(Credit(name="grpo_roles"), group)] == pytest.approx([HALF, -HALF], abs=1e-5)


def test_a_specialist_that_is_called_in_failures_is_compared_with_itself() -> None:
    """Role b acts in the two failing rollouts alone, once well and once badly."""
    solver = [member(reward) for reward in (1.0, 1.0, 0.0, 0.0)]
    specialist = [member(reward, role="b") for reward in (0.2, 0.0)]
    for name in ("grpo_roles", "dr_mas"):
        found = [calls[0] for calls in of_calls(Credit(name=name), solver + specialist)]
        assert found[4:] == pytest.approx([HALF, -HALF], abs=1e-4)
    together = [calls[0] for calls in of_calls(Credit(name="grpo"), solver + specialist)]
    assert max(together[4:]) < 0, "over all roles both seem bad"


@settings(max_examples=5, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=8))
def test_agent_wise_the_second_moment_is_one(rewards: list[float]) -> None:
    """(N - 1) / N with the unbiased standard deviation, for the calls of each role."""
    found = np.array(of_calls(Credit(name="dr_mas"), [member(reward, role="b") for reward in rewards] + [member(9.0)]))
    expected = 0.0 if len(set(rewards)) == 1 else (len(rewards) - 1) / len(rewards)
    assert (found[:-1] ** 2).mean() == pytest.approx(expected, abs=1e-4)
    assert found[-1] == 0, "a role with one call"
