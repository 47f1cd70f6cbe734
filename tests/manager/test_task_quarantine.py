"""Tasks whose environment keeps failing get no further groups, and the run reports them."""

from collections import Counter

from quartet.ledger import Ledger
from quartet.ledger.failing_tasks import WORKER_DIED
from quartet.manager.manager import DataManager
from quartet.manager.task_quarantine import TaskQuarantine
from quartet.report.alarms.facts import read_facts
from quartet.report.alarms.rollouts import failing_tasks
from quartet.report.status import StatusReader
from quartet.types import Status
from tests.ledger.samples import finish, manager_of, plan, recipe

FEW_TASKS = {"control": {"train_seeds_per_family": 3, "failed_groups_per_task": 2, "failed_groups_per_family": 100}}
BROKEN = "bandit/named/1"


def rounds(manager: DataManager, ledger: Ledger, count: int, broken: str, status: Status = Status.ERROR_ENV) -> Counter:
    """Play groups; every attempt at a task whose key begins with `broken` fails. Return the groups of each task.

    Its rollouts have no contrast, so that every group is dropped and makes room for another.
    """
    played: Counter[str] = Counter()
    for _ in range(count):
        while manager.tick():
            pass
        while leases := ledger.rollouts.claim("w", 100, 60):
            for lease in leases:
                fails = f"{lease.task.key}/".startswith(f"{broken}/")
                finish(ledger, lease, max_attempts=2, status=status if fails else Status.COMPLETED)
                played[lease.task.key] += lease.index == 0 and lease.failures == 0
    return played


def test_a_task_that_fails_twice_gets_no_further_groups_and_is_reported(ledger):
    settings = recipe(**FEW_TASKS)
    with manager_of(settings, ledger) as manager:
        rounds(manager, ledger, 6, BROKEN)
        assert ledger.failing_tasks.quarantined() == {BROKEN: "host gone"}
        played = rounds(manager, ledger, 6, BROKEN)
    assert played[BROKEN] == 0
    assert len(played) == 5 and min(played.values()) > 0, "the other tasks of both families are played"
    (event,) = [event for event in ledger.events(1000) if event.kind == "task_quarantined"]
    assert (event.fields["subject"], event.fields["groups_in_a_row"], event.fields["error"]) == (BROKEN, 2, "host gone")
    status = StatusReader(ledger.run_dir, ledger, settings).read()
    assert status.quarantined_tasks == {BROKEN: "host gone"}
    (alarm,) = failing_tasks(read_facts(ledger.run_dir, ledger, settings, status))
    assert alarm.about == BROKEN and "host gone" in alarm.what and "env.families" in alarm.advice


def test_a_family_that_fails_whatever_the_task_leaves_its_sessions_to_the_others(ledger):
    settings = recipe(control={"train_seeds_per_family": 1000, "failed_groups_per_family": 3})
    with manager_of(settings, ledger) as manager:
        rounds(manager, ledger, 8, "bandit/named")
        assert list(ledger.failing_tasks.quarantined()) == ["bandit/named"]
        played = rounds(manager, ledger, 5, "bandit/named")
    assert played and all(key.startswith("bandit/fixed/") for key in played)


def test_a_restarted_data_manager_keeps_the_quarantine_and_a_resumed_run_ends_it(ledger):
    settings = recipe(**FEW_TASKS)
    with manager_of(settings, ledger) as manager:
        rounds(manager, ledger, 6, BROKEN)
    with manager_of(settings, ledger) as manager:
        assert rounds(manager, ledger, 6, "nothing")[BROKEN] == 0
        ledger.failing_tasks.forget()
        assert rounds(manager, ledger, 6, "nothing")[BROKEN] > 0


def test_neither_the_policy_s_failures_nor_an_engine_s_count(ledger):
    with manager_of(recipe(**FEW_TASKS), ledger) as manager:
        rounds(manager, ledger, 6, BROKEN, Status.ERROR_ENGINE)
        rounds(manager, ledger, 6, "nothing")
    assert ledger.failing_tasks.quarantined() == {}


def observed(quarantine: TaskQuarantine, ledger: Ledger, group_id: int) -> bool:
    """Close a group; return whether its task is in quarantine then."""
    ledger.groups.close(group_id)
    quarantine.observe(ledger.groups.load(group_id))
    return quarantine.holds(plan().task)


def test_a_group_that_an_engine_failed_too_does_not_count(ledger):
    """The engine's error was retried, and the environment's was the last one, or the group's deadline passed."""
    quarantine = TaskQuarantine(recipe(control={"failed_groups_per_task": 1}), ledger)
    for then in (Status.ERROR_ENV, None):
        group_id = ledger.groups.admit(plan())
        for status in (Status.ERROR_ENGINE, then):
            for lease in ledger.rollouts.claim("w", 2, 60) if status else []:
                finish(ledger, lease, max_attempts=2, status=status)
        assert not observed(quarantine, ledger, group_id)


def test_lost_leases_count_if_all_attempts_were_lost_while_a_later_group_succeeded(ledger, clock):
    settings = recipe(control={"failed_groups_per_task": 1}, rollout={"max_attempts": 2})
    quarantine, results = TaskQuarantine(settings, ledger), []
    for lost, works in ((1, True), (2, False), (2, True)):
        group_id, later_id = ledger.groups.admit(plan()), ledger.groups.admit(plan("right"))
        for _ in range(lost):
            ledger.rollouts.claim("dies", 2, 60)
            clock.now += 61
            ledger.rollouts.expire(2)
        for lease in ledger.rollouts.claim("works", 4, 60) if works else []:
            if lease.group_id == later_id:
                finish(ledger, lease)
        results.append(observed(quarantine, ledger, group_id))
        ledger.groups.close(later_id)
    assert results == [False, False, True]
    assert ledger.failing_tasks.quarantined() == {plan().task.key: WORKER_DIED}


def test_only_groups_in_a_row_count(ledger):
    quarantine, results = TaskQuarantine(recipe(**FEW_TASKS), ledger), []
    for status in (Status.ERROR_ENV, Status.COMPLETED, Status.ERROR_REWARD, Status.ERROR_ENV):
        group_id = ledger.groups.admit(plan())
        for lease in ledger.rollouts.claim("w", 2, 60):
            finish(ledger, lease, max_attempts=1, status=status)
        ledger.groups.close(group_id)
        quarantine.observe(ledger.groups.load(group_id))
        results.append(quarantine.holds(plan().task))
    assert results == [False, False, False, True]


def test_when_every_task_is_in_quarantine_the_run_goes_on_to_its_error(ledger):
    settings = recipe(control={"train_seeds_per_family": 1, "failed_groups_per_task": 1})
    with manager_of(settings, ledger) as manager:
        assert rounds(manager, ledger, 6, "bandit").total() > 2
    assert set(ledger.failing_tasks.quarantined()) >= {"bandit/named/0", "bandit/fixed/0"}
