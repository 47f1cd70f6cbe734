"""Several policies in one ledger: each has its own groups, batches, versions and roll-backs for the same rollouts."""

from contextlib import closing

import pytest
from msgspec.structs import replace

from quartet.errors import LeaseLostError
from quartet.ledger import Ledger
from quartet.ledger.policy_folders import policies_root
from quartet.manager.evaluation import admit_evaluation
from quartet.manager.filter.base import Filter
from quartet.manager.judge import Judge
from quartet.report.bias import selection_bias
from quartet.report.check import check_ledger
from quartet.report.overview import read_overview
from quartet.report.staleness import lag_histogram, over_lag
from quartet.report.totals import run_totals
from quartet.types import GroupState, Policy, Purpose, RolloutLease, Status, Trajectory
from quartet.types.call import Call
from tests.ledger.samples import FakeClock, manager_of, plan, recipe, statements, trajectory

NAMES = ("even", "odd")


@pytest.fixture
def ledger(tmp_path, clock: FakeClock, url):
    ledger = Ledger.create(tmp_path / "run", clock=clock, url=url, trained=NAMES, frozen=("judge",))
    for name in (*NAMES, "judge"):
        ledger.of(name).policies.register_initial(f"start/{name}")
    yield ledger
    ledger.close()


def part(lease: RolloutLease, name: str, *, versions: tuple[int, ...] = (0,), **fields) -> Trajectory:
    """What `name` did in a rollout."""
    one = trajectory(lease.task, versions=versions, **fields)
    calls: list[Call] = [replace(call, policy=name) for call in one.calls]
    return replace(one, calls=calls, policy=name, role=name, part=name)


def play(ledger: Ledger, *, even: int = 0, odd: int = 0) -> list[int]:
    """A group of two that all three policies played in, closed and judged; returns its groups by policy.

    `even` and `odd` are the versions that sampled.
    """
    group_id = ledger.groups.admit(plan())
    for lease in ledger.rollouts.claim("w", 2, 60):
        won = float(lease.index)
        players = [
            part(lease, "even", reward=won, versions=(even,)),
            part(lease, "odd", reward=1 - won, versions=(odd,)),
        ]
        ledger.trajectories.append(lease, players[0], 3, [players[1], part(lease, "judge")])
    (closable,) = ledger.groups.closable(1e9)
    assert closable == group_id, "the group beside it has no rollouts of its own"
    ledger.groups.close(group_id)
    closed = ledger.groups.closed()
    for one in closed:
        ledger.groups.make_trainable(one, [member.rollout_id for member in ledger.groups.load(one).members], 2)
    return closed


def train(ledger: Ledger, max_lag: int = 9) -> Policy:
    batch = ledger.batches.claim("t", 1, max_lag, "mask", 60)
    assert batch is not None
    return ledger.batches.commit(batch, str(policies_root(ledger.run_dir, ledger.policy) / f"v{batch.train_step}"), {})


def test_a_rollout_writes_a_trajectory_for_each_policy(ledger):
    groups = play(ledger)
    for name, group_id in zip(NAMES, groups, strict=True):
        members = [member.trajectory for member in ledger.groups.load(group_id).members]
        assert [(one.policy, one.part) for one in members] == [(name, name)] * 2
    assert run_totals(ledger).train_rollouts == 2 and ledger.groups.admitted() == 1


def test_an_evaluation_reports_the_rewards_of_all_policies_of_each_episode(ledger):
    admit_evaluation(ledger, recipe(), ["fixed"], seeds=range(3), temperature=0.0, tag="eval/greedy")
    admit_evaluation(ledger, recipe(), ["fixed"], seeds=range(1), temperature=1.0, tag="eval/sampled")
    statuses = [Status.COMPLETED, Status.TRUNCATED_TURNS, Status.ERROR_AGENT, Status.COMPLETED]
    for number, (lease, status) in enumerate(zip(ledger.rollouts.claim("w", 4, 60), statuses, strict=True)):
        rewards = {"even": number / 4, "judge": 1 - number / 4}
        players = [part(lease, name, reward=reward, status=status) for name, reward in rewards.items()]
        ledger.trajectories.append(lease, players[0], 1, players[1:])
    found = ledger.evaluations.rewards("eval/greedy")
    assert found == [("fixed", {"even": 0.0, "judge": 1.0}), ("fixed", {"even": 0.25, "judge": 0.75})]


def test_one_group_is_trained_by_one_policy_and_kept_by_another(ledger):
    play(ledger)
    assert train(ledger.of("odd")) == Policy(
        name="odd", version=1, train_step=1, path=str(ledger.run_dir / "policies" / "odd" / "v1")
    )
    assert (ledger.of("even").batches.train_step(), ledger.of("odd").batches.train_step()) == (0, 1)
    assert [one.statistics.queue_sizes().groups["trainable"] for one in ledger.each()] == [1, 0]
    assert ledger.batches.least_train_step() == 0
    assert ledger.of("odd").batches.claim("t", 1, 9, "mask", 60) is None
    assert train(ledger.of("even")).version == 1
    totals = run_totals(ledger)
    assert (totals.lost, totals.trained_twice) == (0, 0) and check_ledger(ledger).findings == missing_folders(ledger)


def missing_folders(ledger: Ledger) -> list:
    """Of the versions that these tests commit without writing them."""
    return [finding for finding in check_ledger(ledger).findings if finding.kind == "policy_missing"]


def test_two_batches_of_two_policies_are_in_training_at_once(ledger):
    play(ledger)
    first, second = (one.batches.claim("t", 1, 9, "mask", 60) for one in ledger.each())
    assert first and second
    trained = [
        {member.trajectory.policy for group in batch.groups for member in group.members} for batch in (first, second)
    ]
    assert trained == [{"even"}, {"odd"}]
    for one, batch in zip(ledger.each(), (first, second), strict=True):
        one.batches.commit(batch, "p", {})
    with pytest.raises(LeaseLostError):
        ledger.of("odd").batches.commit(second, "p", {})


def test_the_lag_of_a_policy_is_counted_in_its_own_versions(ledger):
    for _ in range(3):
        play(ledger)
        train(ledger.of("odd"))
    play(ledger, even=0, odd=0)
    even, odd = (one.batches.claim("t", 1, 9, "mask", 60) for one in ledger.each())
    assert even and odd and (even.start_version, odd.start_version) == (0, 3)
    for one, batch in zip(ledger.each(), (even, odd), strict=True):
        one.batches.commit(batch, "p", {})
    assert lag_histogram(ledger.of("even")) == {0: 2}
    assert lag_histogram(ledger.of("odd")) == {0: 2, 1: 2, 2: 2, 3: 2}
    assert list(over_lag(ledger.of("even"), 2)) == [] and len(list(over_lag(ledger.of("odd"), 2))) == 1


def test_a_group_too_old_for_one_policy_is_dropped_for_it_alone(ledger):
    for _ in range(2):
        play(ledger)
        train(ledger.of("odd"))
    play(ledger)
    assert ledger.of("odd").batches.claim("t", 1, 1, "drop", 60) is None
    assert ledger.of("even").batches.claim("t", 3, 1, "drop", 60) is not None
    assert run_totals(ledger).dropped_by_reason == {"over_lag": 1}


def test_a_roll_back_of_one_policy_leaves_the_other(ledger):
    for _ in range(2):
        play(ledger)
        train(ledger.of("even"))
        train(ledger.of("odd"))
    assert ledger.of("odd").batches.roll_back(1) == 1
    assert [one.batches.train_step() for one in ledger.each()] == [2, 1]
    assert [one.policies.latest().version for one in ledger.each()] == [2, 1]
    assert train(ledger.of("odd")).version == 3, "a version is never used twice"
    assert run_totals(ledger).trained_twice == 0


def test_a_frozen_policy_is_never_trained(ledger):
    play(ledger)
    judge = ledger.of("judge")
    assert judge.batches.claim("t", 1, 9, "mask", 60) is None
    for one in ledger.each():
        train(one)
    with ledger.read() as connection:
        query = "SELECT count(*) FROM trajectories WHERE policy = 'judge' AND {}"
        counts = [
            connection.exec_driver_sql(query.format(condition)).scalar()
            for condition in ("kind = 'final'", "counted", "id IN (SELECT trajectory_id FROM uses)")
        ]
    assert counts == [2, 0, 0], "stored, in no baseline, and in no use row"
    assert judge.policies.latest().version == 0 and run_totals(ledger).lost == 0


def test_a_call_of_another_policy_does_not_get_into_a_trained_trajectory(ledger):
    ledger.groups.admit(plan())
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    mixed = replace(part(lease, "even", reward=1.0), calls=part(lease, "judge").calls)
    examined = ledger.trajectories.examined(mixed)
    assert examined.status is Status.ERROR_AGENT and "'judge'" in examined.error


def test_an_evaluation_counts_the_first_policy(ledger):
    ledger.evaluations.admit("before/greedy", [plan(rollouts=1, purpose=Purpose.EVAL, tag="before/greedy")])
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, part(lease, "even", reward=1.0), 3, [part(lease, "odd"), part(lease, "judge")])
    result = ledger.evaluations.results("before/greedy")["left"]
    assert (result.successes, result.episodes, result.uncounted) == (1, 1, 0)


def test_admission_counts_the_policy_with_the_most_groups(ledger):
    play(ledger)
    train(ledger.of("odd"))
    ledger.groups.admit(plan())
    assert ledger.groups.ahead() == 2 and ledger.of("odd").statistics.queue_sizes().groups["open"] == 1
    ledger.batches.limit_train_steps(1)
    assert ledger.groups.ahead() == 2, "odd is at its limit, even is not"
    train(ledger.of("even"))
    assert ledger.batches.stop_claims() and ledger.groups.ahead() == 1


def test_engines_settle_each_policy(ledger):
    ledger.policies.expect_engines(["engine", "engine-2"])
    for engine in ("engine", "engine-2"):
        for name in (*NAMES, "judge"):
            assert not ledger.policies.latest_is_settled()
            ledger.of(name).policies.mark_settled(0, serving=0, engine=engine)
    assert ledger.policies.latest_is_settled() and ledger.policies.versions_behind() == 0
    play(ledger)
    train(ledger.of("odd"))
    assert not ledger.policies.latest_is_settled() and ledger.policies.versions_behind() == 1
    assert not ledger.groups.admit_if(plan(), versions_behind=0, settled=False)
    ledger.of("odd").policies.mark_settled(1, serving=1)
    ledger.of("odd").policies.mark_settled(1, serving=1, engine="engine-2")
    assert ledger.policies.latest_is_settled() and ledger.policies.versions_behind() == 0
    assert read_overview(ledger.of("odd")).served_versions == {"engine": 1, "engine-2": 1}
    assert read_overview(ledger).served_versions == {"engine": 0, "engine-2": 0}


def test_parts_of_a_retried_rollout_are_retried_together(ledger):
    ledger.groups.admit(plan(rollouts=1))
    (lease,) = ledger.rollouts.claim("w", 1, 60)
    ledger.trajectories.append(lease, part(lease, "even"), 3, [part(lease, "odd", status=Status.ERROR_ENV)])
    (again,) = ledger.rollouts.claim("w", 1, 60)
    assert (again.rollout_id, again.attempt, again.failures) == (lease.rollout_id, 2, 1)
    ledger.trajectories.append(again, part(again, "even"), 3, [part(again, "odd")])
    assert run_totals(ledger).attempts == {"final": 2, "retried": 2}


def test_the_train_steps_of_another_policy_do_not_date_a_verdict(ledger):
    play(ledger)
    train(ledger.of("odd"))
    play(ledger)
    dates = [one.statistics.family("left", 9).outcomes[0].judged_at_step for one in ledger.each()]
    assert dates == [0, 1]


def test_the_selection_bias_is_that_of_one_policy(ledger):
    """What others sampled in the same rollouts was never to be trained by it."""
    play(ledger)
    train(ledger)
    bias = selection_bias(ledger)
    assert bias.counted is not None and bias.trained is not None
    assert (bias.sampled, bias.counted.rollouts, bias.trained.rollouts) == (2, 2, 2)


def roll_out(ledger: Ledger, *wins: tuple[float, float]) -> None:
    """A group of the same task with the rewards of even and odd in each rollout, closed and judged by a manager."""
    ledger.groups.admit(plan(rollouts=len(wins)))
    for lease, (even, odd) in zip(ledger.rollouts.claim("w", 9, 60), wins, strict=True):
        ledger.trajectories.append(lease, part(lease, "even", reward=even), 3, [part(lease, "odd", reward=odd)])
    ledger.set_value("phase", "judging")  # closes and judges, admits nothing
    with manager_of(recipe(replay={"name": "success_pool"}), ledger) as manager:
        manager.tick()


def test_each_policy_replays_its_own_successes(ledger):
    roll_out(ledger, (1.0, 1.0), (0.0, 0.0))
    roll_out(ledger, (0.0, 0.0), (0.0, 0.0))
    for one in ledger.each():
        batch = one.batches.claim("t", 2, 9, "mask", 60)
        assert batch is not None
        found = [
            (member.rollout_id, member.trajectory.policy, member.trajectory.success)
            for member in batch.groups[1].members
        ]
        assert found == [(3, one.policy, False), (4, one.policy, False), (1, one.policy, True)]
        assert {group.policy for group in batch.groups} == {one.policy}


def test_a_success_of_one_policy_is_none_of_another(ledger):
    roll_out(ledger, (0.0, 1.0), (0.0, 0.0))
    roll_out(ledger, (0.0, 0.0), (0.0, 0.0))
    assert ledger.of("even").batches.claim("t", 1, 9, "mask", 60) is None, "it has nothing to compare"
    assert ledger.of("odd").batches.claim("t", 2, 9, "mask", 60) is not None


def test_the_policies_of_a_run_are_read_from_its_ledger(ledger):
    again = Ledger.open(ledger.run_dir)
    assert (again.policy, again.trained, again.frozen) == ("even", NAMES, ("judge",))
    again.close()


class WithoutOnePart(Filter):
    def apply(self, group):
        kept = [one for one in group.members if (one.rollout_id, one.trajectory.part) != (2, "second")]
        return replace(group, members=kept)


def two_parts(tmp_path, clock, url, rollouts: int) -> Ledger:
    """A run with one policy, and a group of which two members are enough."""
    ledger = Ledger.create(tmp_path / "alone", clock=clock, url=url)
    ledger.policies.register_initial("start")
    ledger.groups.admit(replace(plan(rollouts=rollouts), enough=2))
    return ledger


def play_both(ledger: Ledger, lease: RolloutLease) -> None:
    first, second = (replace(trajectory(lease.task), part=name) for name in ("first", "second"))
    ledger.trajectories.append(lease, first, 3, [second])


def test_a_rollout_that_loses_one_of_its_parts_counts_no_more(tmp_path, clock, url):
    with closing(two_parts(tmp_path, clock, url, 2)) as ledger:
        for lease in ledger.rollouts.claim("w", 2, 60):
            play_both(ledger, lease)
        ledger.groups.close(1)
        group = ledger.groups.load(1)
        verdict = Judge(ledger, {"without": WithoutOnePart(None)}, 3).decide(group, group)
        assert verdict == (GroupState.DROPPED, "too_few_countable"), "two members are left"


def test_a_group_closes_early_by_its_rollouts_and_not_by_their_parts(tmp_path, clock, url):
    with closing(two_parts(tmp_path, clock, url, 3)) as ledger:
        first, second, _ = ledger.rollouts.claim("w", 3, 60)
        play_both(ledger, first)
        assert ledger.groups.ended_rounds() == []
        play_both(ledger, second)
        assert ledger.groups.ended_rounds() == [1]


def test_the_served_versions_of_a_hundred_engines_take_as_many_queries_as_those_of_one(ledger):
    asked: list[int] = []
    for count in (1, 100):
        engines = ["engine", *(f"engine-{number}" for number in range(2, count + 1))]
        ledger.policies.expect_engines(engines)
        for name in (*NAMES, "judge"):
            ledger.of(name).policies.mark_settled(0, serving=0, engine=engines[-1])
        with statements() as queries:
            ledger.policies.versions_behind()
        asked.append(len(queries))
    assert asked[0] == asked[1] > 0
