"""Edge cases and invariances that hold for every credit, or for a list of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from credit_cases import child, credit_of, credited, member
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tiny_batches import make_batch, make_call, make_trajectory

from quartet.config import Credit
from quartet.errors import ConfigError
from quartet.registry import find, names
from quartet.train.credit_batch import CreditBatch
from quartet.types import Batch, GroupMember, ReplayRule, Status, Trajectory


@dataclass(frozen=True)
class Traits:
    """Properties that a credit has beside those that all have."""

    compares: bool = True
    """A group of one, and a group without spread, get 0."""
    shift: bool = True
    """A constant added to the rewards of single turns changes nothing."""
    scale: str = "free"
    """A positive factor on the rewards changes nothing (`free`), is a factor on advantages (`factor`), or neither."""
    over_tokens: bool = False
    """Statistics are over trained tokens, so they change when tokens are too old."""


FACTOR, ALONE = Traits(scale="factor"), Traits(compares=False, shift=False, scale="")
TRAITS = {
    "arpo": Traits(),
    "branch_grpo": Traits(),
    "dars": Traits(shift=False, scale=""),
    "distillation": ALONE,
    "dr_grpo": FACTOR,
    "dr_mas": Traits(),
    "ear": Traits(),
    "echo": Traits(over_tokens=True),
    "gae": Traits(compares=False, shift=False, scale="", over_tokens=True),
    "grpo": Traits(),
    "grpo_roles": Traits(),
    "grpo_steps": Traits(),
    "grpo_turns": Traits(),
    "lite_ppo": Traits(),
    "mars": Traits(),
    "majority_vote": Traits(),
    "max_rl": Traits(shift=False),
    "pass_at_k": FACTOR,
    "reinforce": Traits(compares=False, shift=False, scale="factor"),
    "reinforce_plus_plus": Traits(compares=False, scale="", over_tokens=True),
    "reinforce_plus_plus_baseline": Traits(over_tokens=True),
    "rloo": FACTOR,
    "ro_recomp": Traits(),
    "tree_rl": FACTOR,
    "ui_s1": Traits(),
    "vl_dac": Traits(compares=False, shift=False, scale="", over_tokens=True),
    "xrpo": Traits(),
}
"""Traits of each credit that ships."""
Found = dict[tuple[int, int, int], float]
"""Advantage by rollout id, index of the call in its rollout, and index of the token in its call."""


def found(seen: CreditBatch) -> Found:
    """The advantages of the trained tokens."""
    places_T = np.arange(len(seen.calls_T)) - np.searchsorted(seen.calls_T, seen.calls_T)
    rollouts_T, calls_T = seen.rollout_ids_N[seen.members_T], seen.places_C[seen.calls_T]
    keys = zip(rollouts_T.tolist(), calls_T.tolist(), places_T.tolist(), strict=True)
    return {key: value for key, value, kept in zip(keys, seen.advantages_T.tolist(), seen.mask_T, strict=True) if kept}


def assigned(name: str, batch: Batch, **options) -> Found:
    return found(credited(Credit(name=name), batch, **options))


def mixed() -> Batch:
    """Two groups: members of one to three turns and two roles, a forked one, and two single turns."""
    parent = member(0.25, 0.5, 0.0)
    first = [parent, child(parent, 0, 1.0), member(0.0, role="judge"), member(0.5, 0.5, role="judge"), member(0.0)]
    return make_batch([first, [member(1.0, tokens=3), member(0.0)]])


def with_members(batch: Batch, *members: GroupMember) -> Batch:
    """The batch with these in front of the members of its first group."""
    first, *others = batch.groups
    return replace(batch, groups=[replace(first, members=[*members, *first.members]), *others])


def of(trajectory: Trajectory, rollout_id: int, rule: ReplayRule | None = None) -> GroupMember:
    return GroupMember(rollout_id=rollout_id, trajectory=trajectory, replay=rule)


def test_every_credit_that_ships_has_traits() -> None:
    assert sorted(TRAITS) == names("credit")


@pytest.mark.parametrize("name", TRAITS)
def test_failed_members_and_anchors_change_nothing(name: str) -> None:
    batch, success = mixed(), member(1.0, 1.0)
    failed = [of(replace(success, status=status), 900) for status in Status if not status.countable]
    anchor = of(success, 901, ReplayRule.ANCHOR)
    assert assigned(name, with_members(batch, *failed, anchor)) == assigned(name, batch)


@pytest.mark.parametrize("name", TRAITS)
def test_a_replayed_member_with_its_log_probs_is_compared_like_a_fresh_one(name: str) -> None:
    rules = (None, ReplayRule.STORED)
    fresh, stored = (assigned(name, with_members(mixed(), of(member(1.0), 7, rule))) for rule in rules)
    assert stored == fresh
    part: Any = find("credit", name)
    if TRAITS[name].compares and part.reads_rewards(part.Settings()):
        assert fresh != {**fresh, **assigned(name, mixed())}, "it is part of the baseline"


@pytest.mark.parametrize("name", TRAITS)
def test_members_without_recorded_log_probs_get_finite_credit(name: str) -> None:
    demonstrated = make_call([1], [2, 3])
    demonstrated = replace(demonstrated, response=replace(demonstrated.response, logprobs=[], versions=[]))
    members = [
        of(member(1.0), 7, ReplayRule.RECOMPUTE),
        of(make_trajectory([demonstrated], 1.0), 8, ReplayRule.RECOMPUTE),
    ]
    values = assigned(name, with_members(mixed(), *members))
    assert {7, 8} <= {rollout for rollout, _, _ in values}
    assert np.isfinite(list(values.values())).all()


@pytest.mark.parametrize("name", TRAITS)
def test_tokens_that_are_too_old_keep_their_member_in_the_baseline(name: str) -> None:
    """Their passes are NaN, which reaches no other token."""
    fresh = [member(1.0), member(0.0), member(0.0, 0.5)]
    old = [replace(call, response=replace(call.response, versions=[-9] * 2)) for call in fresh[2].calls]
    wholly, partly = (replace(fresh[2], calls=calls) for calls in (old, [old[0], fresh[2].calls[1]]))
    whole = assigned(name, make_batch([fresh]))
    for trajectory, gone in ((wholly, {0, 1}), (partly, {0})):
        seen = credited(Credit(name=name), make_batch([[*fresh[:2], trajectory]]), max_lag=2)
        kept = {key: value for key, value in whole.items() if not (key[0] == 2 and key[1] in gone)}
        assert found(seen).keys() == kept.keys()
        has_return_T = np.isfinite(seen.returns_T)
        num_steps = len(np.unique(seen.calls_T[seen.mask_T]))
        assert np.isfinite(seen.advantages_T).all()
        assert has_return_T.all() or (name == "vl_dac" and has_return_T[seen.mask_T].sum() == num_steps)
        if not TRAITS[name].over_tokens:
            assert found(seen) == kept


@pytest.mark.parametrize("name", TRAITS)
def test_a_member_without_a_call_gets_nothing_and_breaks_nothing(name: str) -> None:
    assert np.isfinite(list(assigned(name, with_members(mixed(), of(make_trajectory([], 0.0), 7))).values())).all()
    assert assigned(name, make_batch([[make_trajectory([], 0.0), member(1.0)]])).keys() == {(1, 0, 0), (1, 0, 1)}


@pytest.mark.parametrize("name", TRAITS)
def test_a_group_of_one_or_without_spread_gets_zero_where_members_are_compared(name: str) -> None:
    """The rewards of two such groups differ, and their means are not exact in binary."""
    batch = make_batch([[member(0.1)] * 3, [member(0.7)], [member(0.3)] * 6])
    values = np.array(list(assigned(name, batch).values()))
    assert len(values) == 20 and np.isfinite(values).all()
    assert (np.abs(values) < 1e-12).all() == TRAITS[name].compares


@pytest.mark.parametrize("name", TRAITS)
def test_equal_totals_of_different_turns_give_zero_where_totals_are_compared(name: str) -> None:
    """The filter `mixed_outcome` drops such a group. Returns are (1, 0), (1, 1) and (1, 0.5)."""
    values = np.array(
        list(assigned(name, make_batch([[member(1.0, 0.0), member(0.0, 1.0), member(0.5, 0.5)]])).values())
    )
    part: Any = find("credit", name)
    assert (np.abs(values) < 1e-12).all() == part.compares_totals


@pytest.mark.parametrize("name", TRAITS)
def test_a_batch_of_one_token_is_finite(name: str) -> None:
    (value,) = assigned(name, make_batch([[make_trajectory([make_call([1], [2])], 1.0)]])).values()
    assert np.isfinite(value)


@pytest.mark.parametrize("name", TRAITS)
@settings(max_examples=5, deadline=None)
@given(random=st.randoms())
def test_the_order_of_members_and_groups_changes_nothing(name: str, random) -> None:
    batch = mixed()
    groups = [replace(group, members=random.sample(group.members, len(group.members))) for group in batch.groups]
    shuffled = assigned(name, replace(batch, groups=random.sample(groups, len(groups))))
    straight = assigned(name, batch)
    assert shuffled.keys() == straight.keys()
    assert [shuffled[key] for key in straight] == pytest.approx(list(straight.values()), abs=1e-9)


rewards_of_groups = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), min_size=1, max_size=6), min_size=1, max_size=3
)


@pytest.mark.parametrize("name", TRAITS)
@settings(max_examples=5, deadline=None)
@given(rewards=rewards_of_groups, factor=st.sampled_from([0.5, 4.0]), shift=st.sampled_from([-1.0, 3.0]))
def test_shift_and_scale_of_rewards(name: str, rewards: list[list[float]], factor: float, shift: float) -> None:
    def with_rewards(change: Callable[[float], float]) -> np.ndarray:
        batch = make_batch([[member(change(reward)) for reward in group] for group in rewards])
        return np.array(list(assigned(name, batch).values()))

    traits, plain = TRAITS[name], with_rewards(lambda reward: reward)
    if traits.shift:
        np.testing.assert_allclose(with_rewards(lambda reward: reward + shift), plain, atol=1e-6)
    if traits.scale:
        expected = plain * factor if traits.scale == "factor" else plain
        np.testing.assert_allclose(with_rewards(lambda reward: reward * factor), expected, atol=1e-3)


@pytest.mark.parametrize("name", TRAITS)
def test_metrics_are_those_that_the_credit_declares(name: str) -> None:
    settings = {"labels": "majority"} if name == "ear" else {}
    seen = credited(credit_of(name, **settings), mixed())
    assert {f"train/{metric}" for metric in seen.metrics} == set(find("credit", name).metrics)
    assert np.isfinite(list(seen.metrics.values())).all()


def test_settings_out_of_range_are_refused() -> None:
    for name, setting in [("pass_at_k", {"k": 1}), ("dars", {"schedule": "half"}), ("reinforce", {"discount": 1.5})]:
        with pytest.raises(ConfigError, match=f"invalid settings of the credit '{name}'"):
            credited(credit_of(name, **setting), mixed())
