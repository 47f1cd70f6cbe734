"""The Run page's curves: whole, what came since, and between two moments."""

import time
from contextlib import closing
from pathlib import Path

import pytest

from quartet.ledger import Ledger
from quartet.telemetry.record import Recorder
from quartet.types import Purpose, RolloutPlan, Task
from quartet.web.app import build_app
from tests.ledger.samples import finish
from tests.web.conftest import ask, make_run

STEP_SECONDS, STEPS = 10, 20


class Training:
    """A trainer that has taken twenty steps, one every ten seconds, the last one ten seconds ago."""

    def __init__(self, run_dir: Path) -> None:
        self.began_at = self.now = time.time() - STEP_SECONDS * (STEPS + 1)
        self.step = 0
        self.recorder = Recorder(run_dir, "trainer", clock=lambda: self.now)
        for _ in range(STEPS):
            self.record(self.now + STEP_SECONDS)

    def record(self, now: float) -> None:
        """The next step, at this time."""
        self.now, self.step = now, self.step + 1
        self.recorder.metric(
            "train", step=self.step, version=self.step, entropy_nats=1.0 / self.step, lag_max_versions=self.step % 3
        )
        self.recorder.flush()


@pytest.fixture
def training(tmp_path):
    make_run(tmp_path / "run").close()
    training = Training(tmp_path / "run")
    yield training
    training.recorder.close()


@pytest.fixture
def app(training, tmp_path):
    return build_app([tmp_path / "run"])


def points(answer, chart: str, label: str) -> list[list[float]]:
    return [
        p for curve in answer["curves"] if (curve["chart"], curve["label"]) == (chart, label) for p in curve["points"]
    ]


async def test_curves_by_every_axis(app, training):
    async with ask(app) as client:
        for axis in ("train_step", "version"):
            answer = (await client.get("/runs/run/curves.json", params={"axis": axis})).json()
            entropy = points(answer, "entropy", "trained tokens")
            assert [point[0] for point in entropy] == list(range(1, 21))
            assert [point[3] for point in entropy] == [float(f"{1 / step:.6g}") for step in range(1, 21)]
        by_time = (await client.get("/runs/run/curves.json", params={"axis": "time"})).json()
        assert [p[0] for p in points(by_time, "lag", "largest")] == [p[1] for p in points(by_time, "lag", "largest")]
        assert by_time["first"] == pytest.approx(training.began_at, abs=10)
        assert by_time["running"] is False


def evaluate(run_dir: Path) -> None:
    """Record an evaluation of one episode and a dropped group, now."""
    with closing(Ledger.open(run_dir)) as ledger:
        task = Task(env="bandit", family="left", seed=1)
        tag, purpose = "after 20/greedy", Purpose.EVAL
        ledger.evaluations.admit(tag, [RolloutPlan(task=task, num_rollouts=1, max_turns=1, purpose=purpose, tag=tag)])
        group_id = ledger.groups.admit(RolloutPlan(task=task, num_rollouts=2, max_turns=1))
        for lease in ledger.rollouts.claim("w", 9, 60):
            finish(ledger, lease, reward=1.0)
        ledger.groups.close(group_id)
        ledger.groups.drop(group_id, "equal_rewards")


async def test_curves_by_rollouts(app, training, tmp_path):
    manager_now = training.began_at
    manager = Recorder(tmp_path / "run", "manager", clock=lambda: manager_now)
    for step in range(STEPS):
        manager_now = training.began_at + STEP_SECONDS * (step + 0.5)
        manager.metric("data", rollouts=8 * (step + 1))
        manager.flush()
    manager.close()
    evaluate(tmp_path / "run")
    async with ask(app) as client:
        answer = (await client.get("/runs/run/curves.json", params={"axis": "rollouts"})).json()
    entropy = points(answer, "entropy", "trained tokens")
    assert [point[0] for point in entropy] == [8 * step for step in range(1, STEPS + 1)]
    (held_out,) = points(answer, "success", "held-out, greedy")
    assert held_out[0] == 8 * STEPS, "the evaluation began after all these rollouts"
    first, *_ = points(answer, "drops", "all solved")
    assert first[0] == 8 * STEPS


async def test_with_a_cursor_only_what_came_since(app, training):
    async with ask(app) as client:
        first = (await client.get("/runs/run/curves.json")).json()
        training.record(time.time())
        more = (await client.get("/runs/run/curves.json", params={"cursor": first["cursor"]})).json()
    assert [p[0] for p in points(first, "entropy", "trained tokens")] == list(range(1, 21))
    # What was the newest slot may come again.
    assert [p[0] for p in points(more, "entropy", "trained tokens")] in ([21], [20, 21])


async def test_between_two_moments(app, training):
    window = {"start": training.began_at + 50, "end": training.began_at + 75}
    async with ask(app) as client:
        answer = (await client.get("/runs/run/curves.json", params=window)).json()
    assert [p[0] for p in points(answer, "entropy", "trained tokens")] == [5, 6, 7]


@pytest.mark.parametrize("query", ["axis=colour", "start=yesterday", "cursor=nonsense"])
async def test_a_wrong_question_is_answered_with_what_is_wrong(app, query):
    async with ask(app) as client:
        answer = await client.get(f"/runs/run/curves.json?{query}", headers={"accept": "application/json"})
    assert answer.status_code >= 400
    assert query.partition("=")[2] in answer.json()["what"]


async def test_unknown_names_in_a_comparison_are_left_out(app):
    async with ask(app) as client:
        assert (await client.get("/runs/run/run?with=gone&with=run")).status_code == 200


@pytest.mark.parametrize(
    "summary", ['{"policy": "p", "success_greedy": 0.5, "per_task": {}}', '{"train_steps": 0, "su']
)
async def test_a_summary_of_an_evaluation_and_a_damaged_one_do_not_keep_the_page_from_being_shown(tmp_path, summary):
    make_run(tmp_path / "run").close()
    (tmp_path / "run" / "summary.json").write_text(summary)
    async with ask(build_app([tmp_path / "run"])) as client:
        assert (await client.get("/runs/run/run")).status_code == 200


async def test_a_family_that_was_only_evaluated_has_a_page(tmp_path):
    with closing(make_run(tmp_path / "run")) as ledger:
        plan = RolloutPlan(
            task=Task(env="bandit", family="right", seed=0),
            num_rollouts=1,
            max_turns=1,
            purpose=Purpose.EVAL,
            tag="before/greedy",
        )
        ledger.evaluations.admit("before/greedy", [plan])
        leases = ledger.rollouts.claim("w", 9, 60)
        finish(ledger, next(lease for lease in leases if lease.purpose is Purpose.EVAL), reward=1.0)
        (ended,) = ledger.groups.closable(1000)
        ledger.groups.close(ended)
    async with ask(build_app([tmp_path / "run"])) as client:
        assert "right" in (await client.get("/runs/run/tasks")).text
        assert (await client.get("/runs/run/family?name=right")).status_code == 200
        assert (await client.get("/runs/run/family?name=nowhere")).status_code == 404
