"""The Now page tells how every process is: at work, waiting, silent, or not needed."""

import re
import time
from pathlib import Path

import pytest

from benchmarks.bandit import bandit_recipe
from quartet.ledger import Ledger
from quartet.recipe.file import to_toml
from quartet.run.run_dir import RunLock
from quartet.runtime.plan import plan
from quartet.telemetry.presence import Presence
from quartet.web.app import build_app
from tests.web.conftest import ask, make_run


@pytest.fixture
def ledger(tmp_path):
    ledger = make_run(tmp_path / "run")
    ledger.clear_stop()
    yield ledger
    ledger.close()


async def shown(ledger: Ledger) -> str:
    """The page, in words: without tags and in one line."""
    async with ask(build_app([ledger.run_dir])) as client:
        answer = await client.get("/runs/run/now")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text))


async def test_activities_and_waits_are_shown_while_the_run_is_active(ledger):
    Presence(ledger.modules, "engine", interval_seconds=0).working("serving")
    Presence(ledger.modules, "trainer", interval_seconds=0).waits("4 trainable groups", "rollouts finish")
    ledger.enter_phase("training")
    with RunLock(ledger.run_dir):
        text = await shown(ledger)
    assert "engine works" in text and "serving , for" in text
    assert "trainer waits" in text and "for 4 trainable groups , since" in text and "ends when rollouts finish" in text
    text = await shown(ledger)
    assert "engine off" in text and "4 trainable groups" not in text and "not running" in text


@pytest.mark.parametrize(("phase", "told"), [("training", "silent for"), ("evaluating before", "off")])
async def test_silent_trainer_is_reported_in_training_only(ledger, phase, told):
    late = Ledger.open(ledger.run_dir, clock=lambda: time.time() - 100)
    Presence(late.modules, "trainer", interval_seconds=0).working("training")
    late.close()
    ledger.enter_phase(phase)
    with RunLock(ledger.run_dir):
        assert f"trainer {told}" in await shown(ledger)


async def test_in_the_first_seconds_the_page_names_who_has_yet_to_start(ledger):
    ledger.enter_phase("starting")
    Presence(ledger.modules, "engine", interval_seconds=0).working("serving")
    with RunLock(ledger.run_dir):
        text = await shown(ledger)
    assert "run starting" in text and "engine works" in text
    assert "worker off not started yet" in text and "silent" not in text


async def test_every_engine_stands_with_the_version_it_serves(ledger):
    for engine, serving in (("engine", 0), ("engine-2", 0)):
        Presence(ledger.modules, engine, interval_seconds=0).working("serving")
        ledger.policies.mark_settled(0, serving=serving, engine=engine)
    with RunLock(ledger.run_dir):
        text = await shown(ledger)
    assert "engine works v0" in text and "engine-2 works v0" in text


async def test_queues_and_slots_are_counted(ledger):
    with RunLock(ledger.run_dir):
        text = await shown(ledger)
    assert "2 rollouts queued" in text and "admission slots taken 1 of 6" in text


async def test_slots_are_those_that_the_straggler_rule_gives(ledger):
    recipe = bandit_recipe(
        Path("policy"),
        straggler={"name": "april"},
        admission={"schedule": "batch_synchronous", "max_lag": 1},
    )
    (ledger.run_dir / "config.toml").write_text(to_toml(recipe))
    slots = plan(recipe)["max_groups_ahead"]
    assert slots > recipe.max_groups_ahead
    assert f"admission slots taken 1 of {slots} " in await shown(ledger)
