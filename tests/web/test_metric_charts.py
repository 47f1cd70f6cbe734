"""Any recorded metric as a chart: the list of them, pins in the address, several trainers, limits and intervals."""

import pytest

from quartet.errors import ConfigError
from quartet.report.comparison.intervals import wilson
from quartet.telemetry.metric_names import recorded_metrics
from quartet.telemetry.record import Recorder
from quartet.web.app import build_app
from quartet.web.charts import CHARTS, chart_of
from tests.web.conftest import SCRIPT, ask, make_run
from tests.web.recorded import record

NOON = 1_699_999_200.0


def answer_of(chart: str, curves: list[dict]) -> dict[str, list]:
    """The points of a chart by the label of their curve."""
    return {curve["label"]: curve["points"] for curve in curves if curve["chart"] == chart}


def test_all_metrics_are_found_in_the_sums_of_a_long_run_and_of_a_killed_process(tmp_path):
    now = [NOON]
    recorder = Recorder(tmp_path, "trainer", clock=lambda: now[0])
    recorder.metric("train", step=1, loss=0.5)
    now[0] += 10_000
    recorder.metric("train", step=2, entropy_nats=0.5, lag_histogram={"0": 1})
    now[0] += 11
    recorder.flush()  # what was not written when it was killed is lost; the ten seconds are
    assert recorded_metrics(tmp_path) == {
        name: ["trainer"] for name in ("train/entropy_nats", "train/loss", "train/step")
    }
    recorder.close()
    with Recorder(tmp_path, "worker") as other:
        other.metric("rollout", reward=1.0)
    assert recorded_metrics(tmp_path)["rollout/reward"] == ["worker"]


async def test_the_page_lists_what_was_recorded_with_its_meaning_and_draws_what_is_pinned(run_dir):
    async with ask(build_app([run_dir])) as client:
        page = (await client.get("/runs/run/run")).text
        assert (
            'value="train/gradient_norm" form="view">' in page and "before clipping, mean over optimizer steps" in page
        )
        assert 'data-chart="train/gradient_norm"' not in page
        pinned = (await client.get("/runs/run/run?pin=train/gradient_norm")).text
        assert 'data-chart="train/gradient_norm"' in pinned
        assert 'value="train/gradient_norm" form="view" checked>' in pinned
        curves = (await client.get("/runs/run/curves.json?pin=train/gradient_norm")).json()["curves"]
    assert [point[3] for point in answer_of("train/gradient_norm", curves)["trainer"]] == [6.0]


@pytest.mark.parametrize("page", ["run", "curves.json"])
async def test_a_metric_that_is_not_declared_is_no_chart(run_dir, page):
    async with ask(build_app([run_dir])) as client:
        answer = await client.get(f"/runs/run/{page}", params={"pin": SCRIPT})
    assert answer.status_code == 400 and SCRIPT not in answer.text


def test_usual_charts_show_declared_metrics_only():
    for chart in CHARTS:
        for curve in chart.curves:
            assert chart_of(curve.metric).meaning
    with pytest.raises(ConfigError, match="train/loss"):
        chart_of("train/los")


async def test_trainers_are_told_apart_and_stand_at_their_own_steps(tmp_path):
    make_run(tmp_path / "run").close()
    now = [NOON]
    for name, first in (("even", 1), ("odd", 101)):
        with Recorder(tmp_path / "run", f"trainer-{name}", clock=lambda: now[0]) as recorder:
            for step in range(first, first + 3):
                now[0] += 2
                recorder.metric("train", step=step, version=step, entropy_nats=float(step))
    async with ask(build_app([tmp_path / "run"])) as client:
        curves = (await client.get("/runs/run/curves.json")).json()["curves"]
    entropy = answer_of("entropy", curves)
    assert list(entropy) == ["trained tokens · even", "trained tokens · odd"]
    assert [(point[0], point[3]) for point in entropy["trained tokens · odd"]] == [(101, 101), (102, 102), (103, 103)]
    assert [point[0] for point in entropy["trained tokens · even"]] == [1, 2, 3]


async def test_a_cursor_adds_to_the_same_curves_when_one_trainer_is_silent(tmp_path):
    make_run(tmp_path / "run").close()
    recorders = {name: Recorder(tmp_path / "run", f"trainer-{name}") for name in ("even", "odd")}
    for recorder in recorders.values():
        recorder.metric("train", step=1, version=1, entropy_nats=1.0)
        recorder.flush()
    async with ask(build_app([tmp_path / "run"])) as client:
        first = (await client.get("/runs/run/curves.json")).json()
        recorders["odd"].metric("train", step=2, version=2, entropy_nats=1.0)
        recorders["odd"].flush()
        more = (await client.get("/runs/run/curves.json", params={"cursor": first["cursor"]})).json()
    assert set(answer_of("entropy", more["curves"])) <= set(answer_of("entropy", first["curves"]))
    for recorder in recorders.values():
        recorder.close()


def test_an_interval_is_wilsons():
    """Brown, Cai and DasGupta (2001): 0 of 10 and 5 of 10; symmetric; never outside of 0 and 1."""
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(1.0, 480)[1] == 1.0 and wilson(1.0, 480)[0] == pytest.approx(1 - wilson(0.0, 480)[1])


async def test_held_out_points_carry_their_interval_and_number_of_episodes(tmp_path):
    ledger = record(tmp_path / "run")
    with Recorder(tmp_path / "run", "manager") as recorder:
        recorder.metric("evaluation", version=1, success=0.5, episodes=48)
    async with ask(build_app([tmp_path / "run"])) as client:
        curves = (await client.get("/runs/run/curves.json")).json()["curves"]
    success = answer_of("success", curves)
    (reported,) = success["held-out, greedy"]
    (selection,) = success["held-out, selection seeds"]
    assert reported[3] == 1.0 and reported[5:] == pytest.approx([*wilson(1.0, 1), 1], abs=1e-5)
    assert selection[3] == 0.5 and selection[5:] == pytest.approx([*wilson(0.5, 48), 48], abs=1e-5)
    ledger.close()


async def test_drops_are_shares_by_reason_and_the_lag_has_its_bound(tmp_path):
    ledger = record(tmp_path / "run")
    async with ask(build_app([tmp_path / "run"])) as client:
        answer = (await client.get("/runs/run/curves.json")).json()
    drops = answer_of("drops", answer["curves"])
    judged = 5  # trained, two dropped, two trainable
    assert {reason: points[-1][3] for reason, points in drops.items()} == {
        "all failed": 1 / judged,
        "all solved": 1 / judged,
    }
    assert [point[0] for point in drops["all failed"]][-1] == 1, "at the train step of their verdict"
    (bound,) = answer["bounds"]
    assert (bound["chart"], bound["value"]) == ("lag", 2)
    ledger.close()
