"""A whole run with sinks: it outlives them, and they show it to its end."""

import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_end_to_end import slow_learner, start_run, train_step, wait_for

from benchmarks.crashes.processes import module_processes
from quartet.config import Observe
from quartet.ledger import Ledger
from quartet.telemetry.records import read_records

pytestmark = pytest.mark.slow


def test_a_killed_sink_comes_back_and_shows_the_run_to_its_end(tmp_path, bandit_policy):
    recipe = slow_learner(bandit_policy, max_train_steps=5000)
    observe = Observe.model_validate({"sinks": ["tensorboard", {"name": "prometheus", "port": 0}]})
    process = start_run(tmp_path, recipe.model_copy(update={"observe": observe}))
    run = tmp_path / "run"
    wait_for(lambda: train_step(run) >= 2, process)
    module_processes(process.pid)["sink-tensorboard"].kill()
    wait_for(lambda: (run / "tensorboard" / "trainer").exists(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    ledger = Ledger.open(run)
    assert ("module_died", "sink-tensorboard") in [(e.kind, e.fields.get("module")) for e in ledger.events()]
    last_step = ledger.train_step()
    ledger.close()
    assert [record["step"] for record in read_records(run, "train")] == list(range(1, last_step + 1))
    shown = EventAccumulator(str(run / "tensorboard" / "trainer")).Reload().Scalars("train/step")
    assert shown[-1].step == last_step, "what the trainer wrote when it stopped is shown too"
