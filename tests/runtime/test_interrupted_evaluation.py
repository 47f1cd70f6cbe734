"""Evaluations that an interruption or a roll-back has left incomplete: which are completed, and what a run reports."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from benchmarks.bandit import bandit_recipe
from quartet.config import Recipe
from quartet.ledger import Ledger
from quartet.ledger.schema import groups, trajectories
from quartet.report.evaluated import after_tag
from quartet.report.learning_curve import held_out_by_step
from quartet.report.summary import Summary
from quartet.runtime.evaluations import admit_missing_evaluations, first_evaluation
from quartet.runtime.finished import finished_by
from tests.ledger.samples import finish, recipe, trainable_group
from tests.live_runs import TIMEOUT_SECONDS, promises_hold, start_run, train, wait_for

SMALL = recipe(env={"families": ["fixed"]}, evaluation={"episodes_per_family": 4}, train={"max_train_steps": 1})
EPISODES = 16


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A run after its first train step, whose policy no evaluation has seen."""
    with closing(Ledger.create(tmp_path)) as made:
        made.policies.register_initial("policies/v000000")
        evaluate(made, "before")
        take_step(made)
        yield made


def take_step(ledger: Ledger) -> None:
    for _ in range(1 - ledger.groups.ahead()):
        trainable_group(ledger)
    batch = ledger.batches.claim("t", 1, 1, "mask", 60)
    assert batch is not None
    ledger.batches.commit(batch, f"policies/v{ledger.policies.next_version()}", {})


def evaluate(ledger: Ledger, when: str, *, episodes: int = 8) -> list[str]:
    """Begin an evaluation and finish so many of its eight episodes."""
    tags = admit_missing_evaluations(SMALL, ledger, when)
    for lease in ledger.rollouts.claim("w", episodes, 60):
        finish(ledger, lease, reward=1.0, versions=(ledger.policies.latest().version,))
    return tags


@pytest.mark.parametrize("episodes", [0, 3, 4])
def test_a_run_that_is_resumed_begins_with_the_evaluation_that_was_interrupted(ledger: Ledger, episodes: int) -> None:
    assert first_evaluation(SMALL, ledger) == "before", "none after training has begun"
    evaluate(ledger, after_tag(ledger), episodes=episodes)
    assert first_evaluation(SMALL, ledger) == "after 1"
    evaluate(ledger, "after 1")
    assert first_evaluation(SMALL, ledger) == "before", "it is complete"
    assert ledger.evaluations.results("after 1/sampled") == {"fixed": (4, 4, 0)}


def test_an_evaluation_of_which_one_half_was_queued_is_completed(ledger: Ledger) -> None:
    evaluate(ledger, after_tag(ledger))
    with ledger.db.write() as connection:  # the supervisor was killed between the two
        connection.execute(sa.text("DELETE FROM evaluations WHERE tag = 'after 1/sampled'"))
    assert first_evaluation(SMALL, ledger) == "after 1"


@pytest.mark.parametrize("episodes", [3, 8])
def test_after_a_roll_back_the_new_policy_is_evaluated(ledger: Ledger, episodes: int) -> None:
    evaluate(ledger, after_tag(ledger), episodes=episodes)
    ledger.batches.roll_back(0)
    assert first_evaluation(SMALL, ledger) == "before"
    assert not any(map(ledger.evaluations.unfinished, ledger.evaluations.admitted())), "none is left to another policy"
    take_step(ledger)
    assert after_tag(ledger) == "after 1/v2"
    evaluate(ledger, after_tag(ledger), episodes=5)
    assert (after_tag(ledger), first_evaluation(SMALL, ledger)) == ("after 1/v2", "after 1/v2")
    evaluate(ledger, after_tag(ledger))
    assert ledger.evaluations.admitted()["after 1/v2/greedy"] == 2
    assert held_out_by_step(ledger) == [(0, 1.0), (1, 1.0)]


def test_an_evaluation_that_an_older_quartet_cut_off_is_repeated(ledger: Ledger) -> None:
    tags = evaluate(ledger, after_tag(ledger), episodes=3)
    ledger.groups.cancel_unfinished()
    assert all(map(ledger.evaluations.was_cut_off, tags))
    assert (after_tag(ledger), first_evaluation(SMALL, ledger)) == ("after 1/v1", "before")


def test_a_finished_run_whose_evaluation_was_cut_off_is_not_done(tmp_path: Path, bandit_policy: Path) -> None:
    run_dir = tmp_path / "run"
    once = bandit_recipe(
        bandit_policy,
        runtime={"kind": "synchronous"},
        admission={"max_lag": 0},
        evaluation={"episodes_per_family": 4},
        train={"max_train_steps": 1},
    )
    train(run_dir, once)
    assert finished_by(once, run_dir) == "train.max_train_steps = 1"
    with closing(Ledger.open(run_dir)) as ledger, ledger.db.write() as connection:
        tagged = groups.c.tag == "after 1/greedy"
        connection.execute(sa.update(groups).where(tagged).values(state="dropped"))
        connection.execute(
            sa.text("UPDATE rollouts SET status = 'cancelled' WHERE group_id IN (SELECT max(id) - 4 FROM groups)")
        )
    assert finished_by(once, run_dir) is None
    summary = train(run_dir, once, resume=True)
    assert summary["evaluations"]["after"]["episodes"] == 4
    assert [point["tag"] for point in summary["learning_curve"]] == ["before/greedy", "after 1/v1/greedy"]
    assert finished_by(once, run_dir) == "train.max_train_steps = 1"


@pytest.mark.slow
def test_a_synchronous_run_evaluates_the_policy_after_a_roll_back(tmp_path: Path, bandit_policy: Path) -> None:
    run_dir = tmp_path / "run"
    recipe = bandit_recipe(
        bandit_policy,
        runtime={"kind": "synchronous"},
        admission={"max_lag": 0},
        train={"max_train_steps": 3, "learning_rate": 1e-4},
        evaluation={"episodes_per_family": 4},
    )
    train(run_dir, recipe)
    for file in max((run_dir / "policies").iterdir()).iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    summary = train(run_dir, recipe, resume=True)
    assert summary["train_steps"] == 3 and summary["evaluations"]["after"]["episodes"] == 4
    assert [point["tag"] for point in summary["learning_curve"]] == ["before/greedy", "after 3/v4/greedy"]
    assert sampled_by(run_dir, "after 3/v4/greedy") == {"[4]"}


@pytest.mark.slow
def test_an_evaluation_that_ctrl_c_interrupts_is_completed_by_the_same_policy(
    tmp_path: Path, bandit_policy: Path
) -> None:
    """With the limit that ended training, and with a raised one."""
    run_dir, again = tmp_path / "run", tmp_path / "again"
    process = start_run(tmp_path, evaluated(bandit_policy, 2))
    wait_for(lambda: slowed(run_dir, "after 2/sampled"), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130, err
    with closing(Ledger.open(run_dir)) as ledger:
        assert ledger.evaluations.unfinished("after 2/sampled")
    shutil.copytree(run_dir, again, ignore=shutil.ignore_patterns("notifications"))  # named pipes
    whole(run_dir, train(run_dir, evaluated(bandit_policy, 2), resume=True), [0, 2])
    whole(again, train(again, evaluated(bandit_policy, 4), resume=True), [0, 2, 4])


def evaluated(policy: Path, max_train_steps: int) -> Recipe:
    train = {"max_train_steps": max_train_steps, "learning_rate": 1e-5, "max_seconds": 1000.0}
    return bandit_recipe(policy, evaluation={"episodes_per_family": EPISODES}, train=train)


def slowed(run_dir: Path, tag: str) -> bool:
    """Once an evaluation is queued, slow its episodes, so that they outlast the start of a trainer; return whether it
    is."""
    if not (run_dir / "policies").exists():  # so the ledger is not made yet
        return False
    slow = sa.update(groups).where(groups.c.tag == tag).values(params={"delay_seconds": 1.5})
    with closing(Ledger.open(run_dir)) as ledger, ledger.db.write() as connection:
        return bool(connection.execute(slow).rowcount)


def whole(run_dir: Path, summary: Summary, train_steps: list[int]) -> None:
    """Assert that the policies of these train steps have whole evaluations, each with episodes of one policy."""
    assert [point["train_step"] for point in summary["learning_curve"]] == train_steps
    for name in ("before", "before_sampled", "after", "after_sampled"):
        assert summary["evaluations"][name]["episodes"] == summary["evaluations"][name]["asked"] == EPISODES
        assert summary[f"success_{name}"] is not None
    for step in train_steps[1:]:
        for how in ("greedy", "sampled"):
            assert sampled_by(run_dir, f"after {step}/{how}") == {f"[{step}]"}
    promises_hold(run_dir, summary)


def sampled_by(run_dir: Path, tag: str) -> set[str]:
    """Return the policy versions of the evaluation's episodes."""
    query = sa.select(trajectories.c.versions).join(groups, groups.c.id == trajectories.c.group_id)
    with closing(Ledger.open(run_dir)) as ledger, ledger.read() as connection:
        return set(connection.execute(query.where(groups.c.tag == tag, trajectories.c.kind == "final")).scalars())
