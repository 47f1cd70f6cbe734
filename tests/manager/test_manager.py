"""The data manager on a real ledger: admission, verdicts, evaluation, the end of training."""

import asyncio
import json
import shlex
from contextlib import closing

import pytest

from quartet.exchange.fingerprint import run_fingerprint
from quartet.ledger import Ledger
from quartet.manager.evaluation import admit_evaluation
from quartet.manager.manager import run_manager
from quartet.manager.stop import higher_limit, reached_limit, resume_command, training_so_far
from quartet.report.totals import run_totals
from quartet.telemetry.records import read_records
from quartet.types import Purpose
from tests.ledger.samples import finish, manager_of, recipe, statements


def settle(manager) -> None:
    while manager.tick():
        pass


def work(ledger, *, success=lambda lease: lease.index % 2 == 0) -> None:
    version = ledger.policies.latest().version
    for lease in ledger.rollouts.claim("w", 100, 60):
        finish(ledger, lease, reward=float(success(lease)), versions=(version,))


def take_a_step(manager, ledger) -> None:
    """Roll out with every other success until a batch is full, and train on it."""
    settle(manager)
    while not train(ledger):
        work(ledger)
        settle(manager)
    settle(manager)


def train(ledger) -> bool:
    batch = ledger.batches.claim("t", 2, 1, "mask", 60)
    if batch is not None:
        ledger.batches.commit(batch, f"policies/v{batch.train_step}", {})
    return batch is not None


def test_admission_is_bounded_and_explained(ledger):
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        assert ledger.groups.ahead() == 4
        (row,) = ledger.modules.all()
        assert (row.state, row.waiting_for) == ("waiting", "an admission slot")
        assert row.ends_when == "a batch is trained: 4/4 groups ahead"
        work(ledger)
        settle(manager)
        assert ledger.statistics.queue_sizes().groups["trainable"] == 4
        assert train(ledger)
        settle(manager)
        assert ledger.statistics.queue_sizes().groups == {"open": 2, "closed": 0, "trainable": 2, "claimed": 0}


def test_groups_without_contrast_are_dropped_and_their_slots_come_back(ledger):
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        work(ledger, success=lambda lease: True)
        settle(manager)
    assert run_totals(ledger).dropped_by_reason == {"equal_rewards": 4}
    assert ledger.statistics.queue_sizes().groups["open"] == 4
    records = list(read_records(ledger.run_dir, "data"))
    assert [(record["dropped"], record["group_successes"]) for record in records] == [("equal_rewards", 2)] * 4


def test_a_group_is_read_once_when_the_allocator_adds_no_rounds(ledger):
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        work(ledger)
        with statements() as asked:
            settle(manager)
    assert sum("FROM blobs" in statement for statement, _ in asked) == 4, "once for each group"


def test_a_group_with_too_few_members_is_dropped_at_its_deadline(ledger, clock):
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        (lease, *_) = ledger.rollouts.claim("w", 8, 1000)
        finish(ledger, lease, reward=1.0)
        clock.now += 181
        settle(manager)
    assert run_totals(ledger).dropped_by_reason == {"too_few_countable": 4}


def test_the_deadline_of_a_group_counts_from_its_first_lease(ledger, clock):
    """An evaluation is claimed first: groups that wait for it meanwhile must not lose their slow members."""
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        clock.now += 1000  # all groups are queued
        settle(manager)
        assert ledger.statistics.queue_sizes().groups["open"] == 4
        ledger.rollouts.claim("w", 2, 1000)  # of the first group
        clock.now += 179
        (first_of_second,) = ledger.rollouts.claim("w", 1, 1000)
        settle(manager)
        assert ledger.statistics.queue_sizes().groups["open"] == 4
        clock.now += 2
        settle(manager)
        assert run_totals(ledger).dropped_by_reason == {"too_few_countable": 1}
        ledger.rollouts.release(first_of_second)
        clock.now += 170
        ledger.rollouts.claim("w", 1, 1000)  # a second lease begins nothing
        clock.now += 10
        settle(manager)
    assert run_totals(ledger).dropped_by_reason == {"too_few_countable": 2}


def test_nothing_new_starts_outside_the_training_phase(ledger, clock):
    ledger.set_value("phase", "evaluating before")
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        clock.now += 100
        settle(manager)
        assert ledger.groups.ahead() == 0
        ledger.set_value("phase", "training")
        settle(manager)
        assert ledger.groups.ahead() == 4


def test_the_training_clock_counts_from_when_all_modules_are_up_to_the_stop(ledger, clock):
    """Neither a start counts nor the end, and a resume goes on with what was spent."""
    for start, spent in ((1, 5), (2, 10)):
        ledger.enter_phase("starting")
        with manager_of(recipe(), ledger) as manager:
            settle(manager)
            clock.now += 30
            settle(manager)
            assert ledger.groups.ahead() == (0 if start == 1 else 4), "before the start nothing is admitted"
            ledger.enter_phase("training")
            settle(manager)
            clock.now += 5
            settle(manager)
            assert ledger.value("training_seconds") == spent
            ledger.request_stop("enough")
            settle(manager)
            clock.now += 30
            settle(manager)
            assert ledger.value("training_seconds") == spent
        ledger.clear_stop()


def test_periodic_evaluation_finds_the_best_policy(ledger):
    settings = {"train_steps_per_evaluation": 1, "episodes_per_family_during": 2, "first_seed": 500}
    success = {0: False, 1: True, 2: False}
    seeds = set()
    with manager_of(recipe(evaluation=settings), ledger) as manager:
        while ledger.batches.train_step() < 3:
            settle(manager)
            version = ledger.policies.latest().version
            for lease in ledger.rollouts.claim("w", 100, 60):
                held_out = lease.purpose is Purpose.EVAL
                if held_out:
                    seeds.add(lease.task.seed)
                    assert lease.temperature == 0.0
                won = success[version] if held_out else lease.index == 0
                finish(ledger, lease, reward=float(won), versions=(version,))
            settle(manager)
            train(ledger)
    assert seeds == {500_500, 500_501}, "not those that results are reported on"
    best = ledger.policies.best()
    assert best is not None and best.version == 1
    assert ledger.evaluations.results("during/1") == {"fixed": (2, 2, 0), "named": (2, 2, 0)}
    records = list(read_records(ledger.run_dir, "evaluation"))
    assert [(record["version"], record["success"]) for record in records] == [(1, 1.0), (2, 0.0)]


def test_training_ends_at_the_last_step(ledger):
    with manager_of(recipe(train={"max_train_steps": 1}), ledger) as manager:
        settle(manager)
        work(ledger)
        settle(manager)
        assert train(ledger)
        assert not train(ledger), "the ledger refuses a claim beyond the last step, even before the manager's next look"
        settle(manager)
    assert ledger.stop_reason() == "train.max_train_steps = 1 reached"
    assert ledger.events(1)[0].kind == "stop"


@pytest.mark.slow
def test_training_ends_in_time_and_finishes_its_step(ledger, clock):
    with manager_of(recipe(train={"max_seconds": 60}), ledger) as manager:
        settle(manager)
        work(ledger)
        settle(manager)
        batch = ledger.batches.claim("t", 2, 1, "mask", 600)
        clock.now += 61
        settle(manager)
        assert ledger.stop_reason() is None
        ledger.batches.commit(batch, "policies/v1", {})
        assert not train(ledger)
        settle(manager)
    assert ledger.stop_reason() == "train.max_seconds = 60 reached"


def test_training_ends_after_its_rollouts_and_trains_on_all_that_fill_a_batch(ledger):
    settings = recipe(train={"max_rollouts": 11})  # groups of 2, batches of 2 groups
    with manager_of(settings, ledger) as manager:
        for _ in range(2):
            settle(manager)
            work(ledger)
            settle(manager)
            assert train(ledger)
        settle(manager)
        assert ledger.rollouts.queued_for_training() == 12, "the last group exceeds the limit by one"
        (row,) = ledger.modules.all()
        assert (row.waiting_for, ledger.stop_reason()) == ("the end of training", None), "groups are still open"
        work(ledger)
        settle(manager)
        assert ledger.stop_reason() is None, "two groups fill a batch"
        batch = ledger.batches.claim("t", 2, 1, "mask", 600)
        settle(manager)
        assert ledger.stop_reason() is None, "the batch in training is committed first"
        ledger.batches.commit(batch, "policies/v3", {})
        settle(manager)
    assert ledger.stop_reason() == "train.max_rollouts = 11 reached"
    assert_the_advice_lets_it_go_on(settings.train, ledger)
    assert (ledger.rollouts.queued_for_training(), ledger.rollouts.ended_in_training()) == (12, 12)
    records = [record["rollouts"] for record in read_records(ledger.run_dir, "data")]
    assert sorted(set(records)) == [8, 12], "each verdict says how many rollouts had ended"


def test_training_ends_with_rest_that_fills_no_batch(ledger):
    with manager_of(recipe(train={"max_rollouts": 6}), ledger) as manager:
        settle(manager)
        work(ledger)
        settle(manager)
        assert train(ledger)
        settle(manager)
        assert ledger.statistics.queue_sizes().groups["trainable"] == 1
    assert ledger.stop_reason() == "train.max_rollouts = 6 reached"


def assert_the_advice_lets_it_go_on(limits, ledger):
    assert reached_limit(limits, ledger) is not None
    name, value = higher_limit(ledger.stop_reason(), training_so_far(ledger)).removeprefix("--set train.").split("=")
    assert reached_limit(limits.model_copy(update={name: json.loads(value)}), ledger) is None


def test_training_ends_at_the_target_success_of_an_evaluation(ledger):
    settings = recipe(
        train={"target_success": 0.75},
        evaluation={"train_steps_per_evaluation": 1, "episodes_per_family_during": 2, "first_seed": 1000},
    )
    with manager_of(settings, ledger) as manager:
        for solved in (1, 2):
            settle(manager)
            for lease in ledger.rollouts.claim("w", 100, 60):
                good = lease.index % 2 == 0 if lease.purpose is Purpose.TRAIN else lease.task.seed % 2 < solved
                finish(ledger, lease, reward=float(good), versions=(ledger.policies.latest().version,))
            settle(manager)
            assert (ledger.stop_reason() is None) == (solved == 1)
            if solved == 1:
                assert train(ledger)
                settle(manager)
                work(ledger, success=lambda lease: lease.task.seed % 2 == 0 or lease.purpose is Purpose.TRAIN)
                settle(manager)
                assert ledger.policies.highest_success() == 0.5 and ledger.stop_reason() is None
                assert train(ledger)
    assert ledger.stop_reason() == "train.target_success = 0.75 reached"
    assert_the_advice_lets_it_go_on(settings.train, ledger)


def test_no_evaluation_begins_with_the_end_of_training(ledger):
    """It would be cut off, and its first episodes would count as its result."""
    settings = recipe(
        train={"max_train_steps": 1},
        evaluation={"train_steps_per_evaluation": 1, "episodes_per_family_during": 2, "first_seed": 1000},
    )
    with manager_of(settings, ledger) as manager:
        take_a_step(manager, ledger)
    assert ledger.stop_reason() == "train.max_train_steps = 1 reached"
    assert not ledger.evaluations.admitted()


def test_a_train_step_that_is_repeated_after_a_roll_back_is_evaluated_again(ledger):
    """The evaluation before is of a policy that is gone."""
    settings = recipe(evaluation={"train_steps_per_evaluation": 1, "episodes_per_family_during": 2, "first_seed": 1000})
    with manager_of(settings, ledger) as manager:
        take_a_step(manager, ledger)
        work(ledger)
        settle(manager)
        assert ledger.evaluations.admitted() == {"during/1": 1}
        ledger.batches.roll_back(0)
        take_a_step(manager, ledger)
        assert ledger.evaluations.admitted() == {"during/1": 1, "during/1/v2": 2}
    with manager_of(settings, ledger) as manager:
        settle(manager)
    assert len(ledger.evaluations.admitted()) == 2, "the evaluation of the present step counts after a restart"


def test_an_evaluation_that_the_end_of_training_cuts_off_has_no_result(ledger):
    settings = recipe(evaluation={"train_steps_per_evaluation": 1, "episodes_per_family_during": 2, "first_seed": 1000})
    with manager_of(settings, ledger) as manager:
        take_a_step(manager, ledger)
        evaluating = [one for one in ledger.rollouts.claim("w", 100, 60) if one.purpose is Purpose.EVAL]
        finish(ledger, evaluating[0], reward=1.0, versions=(1,))
        ledger.request_stop("by hand")
        ledger.groups.cancel_unfinished()
        settle(manager)
    assert ledger.policies.highest_success() is None and not ledger.evaluations.running()
    assert "evaluation_uncounted" not in {event.kind for event in ledger.events()}


def test_the_training_clock_survives_a_restart_and_does_not_count_the_pause(ledger, clock):
    settings = recipe(train={"max_seconds": 60})
    for _ in range(2):
        ledger.enter_phase("starting")
        with manager_of(settings, ledger) as manager:
            settle(manager)
            ledger.enter_phase("training")
            settle(manager)
            clock.now += 20
            settle(manager)
        clock.now += 1000
    assert ledger.value("training_seconds") == 40
    assert ledger.stop_reason() is None


def test_a_data_manager_that_dies_in_training_costs_training_time(ledger, clock):
    settings = recipe(train={"max_seconds": 60})
    for seconds in (20, 50):
        with manager_of(settings, ledger) as manager:
            settle(manager)
            assert ledger.value("training_seconds", 0.0) == seconds - 20
            clock.now += 20
            settle(manager)
            assert ledger.value("training_seconds") == seconds
        clock.now += 10
    with manager_of(settings, ledger) as manager:
        settle(manager)
    assert ledger.stop_reason() == "train.max_seconds = 60 reached"


def test_the_pause_of_a_killed_run_does_not_count_whenever_its_next_data_manager_dies(ledger, clock):
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        clock.now += 20
        settle(manager)
    clock.now += 1000
    ledger.enter_phase("starting")
    with manager_of(recipe(), ledger):  # dies before the training begins
        pass
    ledger.enter_phase("training")
    with manager_of(recipe(), ledger) as manager:
        settle(manager)
        assert ledger.value("training_seconds") == 20


def test_the_training_clock_ends_with_the_manager_s_own_request_to_stop(ledger, clock):
    """The end is written in the same tick: a synchronous run may have no other, and the next comes later."""
    with manager_of(recipe(train={"max_train_steps": 1}), ledger) as manager:
        settle(manager)
        work(ledger)
        settle(manager)
        clock.now += 0.25
        assert train(ledger)
        manager.tick()
        assert ledger.stop_reason() is not None
        assert ledger.value("training_seconds") == 0.25
        clock.now += 30
        manager.tick()
        assert ledger.value("training_seconds") == 0.25


@pytest.mark.parametrize(
    ("reason", "trained", "option"),
    [
        ("train.max_train_steps = 10 reached", {"max_train_steps": 10}, "--set train.max_train_steps=20"),
        ("train.max_train_steps = 2 reached", {"max_train_steps": 100}, "--set train.max_train_steps=200"),
        ("train.max_train_steps = 1234567 reached", {"max_seconds": 5}, "--set train.max_train_steps=2469134"),
        ("train.max_seconds = 60 reached", {"max_seconds": 60.0}, "--set train.max_seconds=120"),
        ("train.max_seconds = 0.2 reached", {"max_seconds": 0.2}, "--set train.max_seconds=0.4"),
        ("train.max_seconds = 1e-05 reached", {}, "--set train.max_seconds=2e-05"),
        ("train.max_seconds = 1e-05", {"max_seconds": 50.0}, "--set train.max_seconds=100"),
        ("train.max_rollouts = 6000 reached", {"max_rollouts": 6004}, "--set train.max_rollouts=12008"),
        ("train.target_success = 0.9 reached", {}, "--set train.target_success=0.95"),
        ("train.target_success = 0.5 reached", {"target_success": 0.9}, "--set train.target_success=0.95"),
        ("train.target_success = 0.9 reached", {"target_success": 1.0}, "--set train.target_success=null"),
        ("starved: fewer than 2 trainable groups", {"max_train_steps": 3}, ""),
    ],
)
def test_a_higher_limit_lets_the_run_go_on(reason, trained, option):
    assert higher_limit(reason, trained) == option
    assert resume_command("runs/a", reason, trained).endswith(f"--resume {option}".rstrip())


def test_evaluation_counts_by_family(ledger):
    settings = recipe(evaluation={"first_seed": 1000})
    admit_evaluation(
        ledger, settings, ["named", "fixed"], seeds=range(1000, 1003), temperature=0.5, tag="before/sampled"
    )
    assert ledger.evaluations.was_admitted("before/sampled") and not ledger.evaluations.was_admitted("before/greedy")
    assert ledger.evaluations.unfinished("before/sampled") == 6
    work(ledger, success=lambda lease: lease.task.seed == 1000)
    assert ledger.evaluations.unfinished("before/sampled") == 0
    assert ledger.evaluations.results("before/sampled") == {"fixed": (1, 3, 0), "named": (1, 3, 0)}


async def test_the_module_runs_until_it_is_told_to_stop(tmp_path, bandit_policy):
    stop = asyncio.Event()
    with closing(Ledger.create(tmp_path / "module")) as ledger:
        ledger.policies.register_initial(str(bandit_policy))
        running = asyncio.create_task(run_manager(recipe(), ledger.run_dir, stop))
        while ledger.groups.ahead() < 4 and not running.done():  # noqa: ASYNC110  (the ledger is the only contract)
            await asyncio.sleep(0.01)
        stop.set()
        await running
        assert ledger.modules.all()[0].module == "manager"
        assert ledger.policies.vocabulary_size and run_fingerprint(ledger)


def test_share_of_waiting_counts_every_process_of_a_module(ledger, clock):
    said = {"state": "waiting", "waiting_for": "x", "ends_when": "y", "since": 0.0, "url": "http://127.0.0.1:1"}
    for waited in (0.0, 4.0, 0.0, 3.0):
        ledger.modules.report("engine", waiting_seconds=waited, **said)
        clock.now += 10
    (row,) = ledger.modules.all()
    assert (row.waiting_seconds, row.alive_seconds, row.share_waiting) == (7.0, 20.0, 0.35)
    assert ledger.modules.url("engine") == "http://127.0.0.1:1"
    assert ledger.modules.url("worker") is None


def test_the_command_that_resumes_a_run_can_be_pasted_whatever_the_folders_name():
    command = shlex.split(resume_command("runs/my run"))
    assert command == ["quartet", "train", "runs/my run/config.toml", "--run-dir", "runs/my run", "--resume"]
