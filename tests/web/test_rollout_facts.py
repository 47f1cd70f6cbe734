"""What a rollout's page knows: attempts, group, lineage, and what training made of its tokens."""

import math
from contextlib import closing

import msgspec
import pytest
from msgspec.structs import replace

from quartet.actions.taken import taken_action
from quartet.ledger import Ledger
from quartet.ledger.schema import TrajectoryKind
from quartet.telemetry.token_values import read_token_values, unpacked, write_token_values
from quartet.types import Message, Observation, Picture, Status, Turn
from quartet.web import rollout_view
from quartet.web.prompt_view import PromptPart
from quartet.web.queries.families import list_groups
from quartet.web.queries.rollout import read_rollout
from quartet.web.queries.tasks import family_rows
from quartet.web.rollout_view import KINDS, RolloutView, view_rollout
from quartet.web.tokens import MEASURES
from quartet.web.viewed_run import ViewedRun
from tests.ledger.samples import spoil
from tests.postgresql import needs_postgresql, server_url
from tests.web.recorded import Recorder, png, record, trajectory


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def url(request) -> str:
    return "" if request.param == "sqlite" else server_url()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory, url):
    """A run that its tests only read."""
    with closing(record(tmp_path_factory.mktemp("facts") / "run", url)) as ledger:
        yield ledger


@pytest.fixture
def own_ledger(tmp_path, url):
    """The same run, for one test that changes it."""
    with closing(record(tmp_path / "own" / "run", url)) as ledger:
        yield ledger


def viewed(ledger: Ledger, rollout_id: int, turn_number: int | None = None) -> RolloutView:
    run = ViewedRun(ledger.run_dir, "run")
    with run.ledger.read() as connection:
        facts = read_rollout(connection, rollout_id)
        assert facts is not None
        view = view_rollout(run, connection, facts, facts.newest, turn_number=turn_number)
    run.close()
    return view


def test_lineage_of_a_trained_rollout(ledger):
    view = viewed(ledger, 2)
    (use,) = view.facts.uses
    assert (use.role, use.train_step, use.start_version, use.version, use.voided) == ("fresh", 1, 0, 1, False)
    assert [row.id for row in view.facts.siblings] == [1, 2]
    assert view.neighbours == (1, None)
    assert [policy.version for policy in view.facts.policies] == [0]
    assert view.fate == "was trained on"


def test_a_retried_rollout_shows_both_attempts_and_the_one_that_counts(ledger):
    view = viewed(ledger, 7)
    assert [(row.attempt, row.kind) for row in view.facts.attempts] == [(1, "retried"), (2, "final")]
    assert view.attempt.attempt == 2
    assert view.fate == "waits to be trained on"


@pytest.mark.parametrize(("rollout_id", "why"), [(3, "all failed"), (5, "all solved")])
def test_drop_reason_of_a_rollout_is_shown(ledger, rollout_id, why):
    assert viewed(ledger, rollout_id).fate == f"was not trained on: its group was dropped ({why})"


def test_running_rollout_has_no_attempt_and_an_unknown_id_no_rollout(ledger):
    view = viewed(ledger, 11)
    assert (view.attempt, view.turns, view.fate) == (None, [], "is running now")
    with ledger.read() as connection:
        assert read_rollout(connection, 999) is None


def test_tokens_carry_what_the_trainer_computed(ledger):
    tokens = viewed(ledger, 2).turns[0].call.tokens
    assert [token.shown["logprob"] for token in tokens] == ["−0.01", "−1.00", "−5.00"]
    assert [token.shown["mask"] for token in tokens] == ["trained", "trained", "left out"]
    assert [token.shown["entropy"] for token in tokens] == ["0.00", "1.00", "–"]
    assert tokens[1].shown["importance"] == f"{math.exp(0.5):.2f}"
    assert tokens[2].shown["importance"] == "–"
    assert {token.shown["version"] for token in tokens} == {"v0"}
    assert [token.shown["advantage"] for token in tokens] == ["0.50", "−0.25", "–"]
    assert viewed(ledger, 2).training.advantage_range == [-0.25, 0.5]


def test_without_the_trainers_values_nothing_is_claimed_of_advantage_and_mask(own_ledger):
    for path in (own_ledger.run_dir / "tokens").iterdir():
        path.unlink()
    view = viewed(own_ledger, 2)
    for name in ("mask", "advantage", "entropy", "importance"):
        assert {token.shown[name] for turn in view.turns for token in turn.call.tokens} == {"–"}
    assert view.training.advantage_range == []
    assert "max_token_values_megabytes" in view.training.missing


def test_damaged_values_of_the_trainer_are_named_and_the_rest_is_shown(own_ledger):
    (path,) = (own_ledger.run_dir / "tokens").glob("step_000001_*")
    path.write_bytes(path.read_bytes()[:-9])
    view = viewed(own_ledger, 2)
    assert view.training.missing.startswith(f"the trainer's values cannot be read: tokens/{path.name} is damaged")
    assert {token.shown["advantage"] for turn in view.turns for token in turn.call.tokens} == {"–"}


def test_values_that_an_older_version_kept_are_shown_without_an_advantage(own_ledger):
    calls = read_token_values(own_ledger.run_dir, 1, 1)
    old = [msgspec.structs.replace(call, group_id=None, advantages=b"") for call in calls or []]
    write_token_values(own_ledger.run_dir, 1, 1, old, max_megabytes=1)
    tokens = viewed(own_ledger, 2).turns[0].call.tokens
    assert [token.shown["mask"] for token in tokens] == ["trained", "trained", "left out"]
    assert {token.shown["advantage"] for token in tokens} == {"–"}


def test_every_kind_of_attempt_is_explained():
    assert set(KINDS) == set(TrajectoryKind)


def test_every_value_of_a_measure_has_one_of_its_classes():
    for measure in MEASURES:
        assert len(measure.labels) == len(measure.bounds) + 1
        assert measure.class_of(-math.inf) == "0"
        assert measure.class_of(math.inf) == str(len(measure.labels) - 1)
        assert measure.class_of(math.nan) == measure.class_of(None) == ""


def test_a_long_response_is_text_and_its_turn_lists_the_tokens(ledger, monkeypatch):
    first, _ = viewed(ledger, 2).turns
    assert (len(first.call.tokens), first.call.text, first.call.prompt) == (3, None, [])
    monkeypatch.setattr(rollout_view, "MOST_TILES", 2)
    monkeypatch.setattr(rollout_view, "LEAST_TILES", 1)
    first, second = viewed(ledger, 2).turns
    assert (first.call.tokens, first.call.text, second.call.text) == ([], "#1 #2 #3", "#1 #2 #3")
    turn = viewed(ledger, 2, turn_number=2).turns[1]
    assert (len(turn.call.tokens), turn.call.text, turn.call.prompt) == (3, "#1 #2 #3", [PromptPart(text="#7 #8")])


def test_many_short_responses_together_are_text_too(ledger, monkeypatch):
    monkeypatch.setattr(rollout_view, "MOST_TILES_OF_ALL", 4)
    monkeypatch.setattr(rollout_view, "LEAST_TILES", 1)
    assert [turn.call.text for turn in viewed(ledger, 2).turns] == ["#1 #2 #3"] * 2


def test_rollout_with_a_lost_record_is_shown_from_its_rows(own_ledger):
    spoil(own_ledger, 2, missing=True)
    view = viewed(own_ledger, 2)
    assert "cannot be read" in view.problem and not view.turns
    assert view.facts.uses[0].train_step == 1
    assert viewed(own_ledger, 1).training.advantage_range == [-0.25, 0.5]  # the other's record is not needed


def test_family_counts_the_outcomes_of_its_groups(ledger):
    with ledger.read() as connection:
        rows = {row.family: row for row in family_rows(connection, "bandit", ledger.policy)}
        groups = list_groups(connection, "left")
    left = rows["left"]
    assert (left.fates.trained, left.fates.on_the_way) == (1, 1)
    assert left.fates.dropped == {"all failed": 1, "all solved": 1}
    assert (left.train_groups, left.rollouts_text, left.held_out) == (4, "8", {"before/greedy": (1, 1, 0)})
    assert left.success == pytest.approx(3 / 6)
    assert [(row.successes, row.countable) for row in groups.rows] == [(2, 2), (0, 2), (1, 2)]


def test_a_released_claim_stays_in_the_lineage(tmp_path):
    run = Recorder(tmp_path / "run")
    run.trainable("left", [0.0, 1.0])
    given_back = run.ledger.batches.claim("trainer", 1, 5, "mask", 60)
    run.ledger.batches.release(given_back)
    run.train()
    uses = viewed(run.ledger, 1).facts.uses
    assert [(use.state, use.voided, use.version) for use in uses] == [("released", True, None), ("committed", False, 1)]
    run.ledger.close()


def test_late_attempt_is_kept_and_marked_late(tmp_path):
    run = Recorder(tmp_path / "run")
    early, slow = run.open_group("left", 2)
    run.ledger.trajectories.append(early, trajectory(early.task, 1.0), 3)
    run.ledger.groups.close(early.group_id)
    run.ledger.trajectories.append(slow, trajectory(slow.task, 1.0), 3)
    view = viewed(run.ledger, slow.rollout_id)
    assert [row.kind for row in view.facts.attempts] == ["late"]
    assert view.facts.final is None and view.facts.rollout.status == Status.CANCELLED
    run.ledger.close()


def test_token_values_stay_within_their_budget(tmp_path, ledger):
    calls = read_token_values(ledger.run_dir, 1, 1)
    assert unpacked(calls[0].entropies).tolist()[:2] == [0.0, 1.0]
    for step in range(1, 5):
        write_token_values(tmp_path, step, step, [calls[0]] * 5000, max_megabytes=1)
    names = sorted(path.name for path in (tmp_path / "tokens").iterdir())
    assert names and names[-1].startswith("step_000004")
    assert sum(path.stat().st_size for path in (tmp_path / "tokens").iterdir()) <= 10**6
    assert read_token_values(tmp_path, 1, 1) is None


def test_the_budget_of_token_values_outlasts_the_trainer_of_another_policy(tmp_path, ledger):
    """Two trainers keep one budget: a file may be deleted between its listing and its deletion."""
    calls = read_token_values(ledger.run_dir, 1, 1)
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "step_000000_batch_000000.msgpack").symlink_to("deleted")
    for step in range(1, 5):
        write_token_values(tmp_path, step, step, [calls[0]] * 5000, max_megabytes=1)
    assert read_token_values(tmp_path, 1, 1) is None and read_token_values(tmp_path, 4, 4)


def test_several_actions_and_the_end_are_shown(tmp_path):
    run = Recorder(tmp_path / "run")
    (lease,) = run.open_group("left", 1)
    made = trajectory(lease.task, 1.0)
    actions = [
        taken_action("drag (1,2) to (3,4)"),
        taken_action("click [1]", points=[(5.0, 6.0)]),
        taken_action("infeasible"),
    ]
    spoken = Observation(goal="", text="button left [1]", messages=[Message("tool", "rain\nwind")])
    end = Observation(goal="", text="gone", pictures=[Picture(data=png())])
    turn = Turn(observation=spoken, call_index=0, response="", actions=actions, rewards={"a": 1.0, "b": -0.5})
    run.ledger.trajectories.append(lease, replace(made, turns=[turn], final_observation=end), 3)
    view = viewed(run.ledger, lease.rollout_id)
    (shown,) = view.turns
    assert [(line.text, line.acted_on) for line in shown.page] == [
        ("tool: rain", False),
        ("wind", False),
        ("button left [1]", True),
    ]
    assert [mark.points for mark in shown.marks] == [[(1, 2), (3, 4)], [(5, 6)]]
    assert shown.pointed == "dragged from (1, 2) to (3, 4); clicked at (5, 6)"
    assert view.end is not None and (view.end.number, [line.text for line in view.end.page]) == (2, ["gone"])
    assert len(view.pictures) == 1
    run.ledger.close()


def test_an_action_that_was_not_done_leaves_the_pointer_where_it_was(tmp_path):
    run = Recorder(tmp_path / "run")
    (lease,) = run.open_group("left", 1)
    made = trajectory(lease.task, 1.0)
    first, refused = made.turns
    run.ledger.trajectories.append(lease, replace(made, turns=[first, refused, first]), 3)
    assert [turn.came_from for turn in viewed(run.ledger, lease.rollout_id).turns] == [None, (2, 1), (2, 1)]
    run.ledger.close()


def test_a_parent_and_its_children_name_each_other(own_ledger):
    task = trajectory(own_ledger.groups.load(1).task, 1.0)
    (running,) = own_ledger.rollouts.claim("w", 9, 60)
    child_id, other_id = own_ledger.forks.add(running, task.calls, 0, 2, 8)
    assert own_ledger.rollouts.cancel([other_id]) == 1
    parent, child = viewed(own_ledger, running.rollout_id), viewed(own_ledger, child_id)
    assert [(row.id, row.parent_call, row.status) for row in parent.facts.children] == [
        (child_id, 0, ""),
        (other_id, 0, "cancelled"),
    ]
    assert parent.facts.rollout.parent_id is None and child.facts.children == []
    assert (child.facts.rollout.parent_id, child.facts.rollout.parent_call) == (running.rollout_id, 0)
    assert own_ledger.forks.count() == 1, "the other one was cancelled"
