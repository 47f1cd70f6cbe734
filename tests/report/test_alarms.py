"""Every alarm rings at what it is for, says what to try, and is silent in a healthy run."""

import math
import time
from pathlib import Path

import pytest
from msgspec import structs

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError
from quartet.ledger import Ledger
from quartet.ledger.rows import Event, RepeatedError
from quartet.report.alarms import RULES, Facts, read_alarms
from quartet.report.alarms.announced import Announced
from quartet.report.alarms.facts import Alarm, NoAction
from quartet.report.alarms.rollouts import quarantined
from quartet.report.display import LiveDisplay
from quartet.report.recent import newest_train_metrics, recent_statuses, recent_verdicts
from quartet.report.run_progress import TRAINING, run_progress
from quartet.report.sink_process import BEAT_SECONDS, POLL_SECONDS
from quartet.report.status import GIVEN_UP, NOT_STARTED, SILENT_AFTER_SECONDS, ModuleStatus, StatusReader
from quartet.telemetry.presence import Presence
from quartet.telemetry.record import Recorder
from quartet.types import Purpose, RolloutPlan, Task
from tests.ledger.samples import trainable_group, trajectory

DAMAGED = {"train_step": 3, "error": "zeroed"}
RECIPE = bandit_recipe(Path("policy"), train={"max_train_steps": 10, "max_seconds": 100.0})

BROKEN = RepeatedError(count=2, error="Env.step raised ValueError: odd", status="error_env", rollout_id=7, blob="none")


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger.create(tmp_path)
    ledger.policies.register_initial("policy")
    ledger.enter_phase(TRAINING)
    yield ledger
    ledger.close()


def module(name: str, **changed: object) -> ModuleStatus:
    healthy = ModuleStatus(
        module=name, state="working", waiting_for="", ends_when="", since_seconds=1, silent_seconds=0
    )
    return structs.replace(healthy, **changed)


def masked(share: float, of_successes: float, of_failures: float) -> dict[str, float]:
    return {"masked_share": share, "masked_success_share": of_successes, "masked_failure_share": of_failures}


LEARNS = {
    "effective_sample_fraction": 0.9,
    "importance_max": 5.0,
    "clip_fraction": 0.05,
    "zero_credit_group_share": 0.2,
    "gradient_norm": 0.4,
}


@pytest.fixture
def healthy(ledger, tmp_path) -> Facts:
    status = StatusReader(tmp_path, ledger, RECIPE).read()
    return Facts(
        recipe=RECIPE,
        status=structs.replace(status, modules=[module("trainer"), module("worker")]),
        events=[],
        statuses={"completed": 180, "truncated_turns": 15, "error_env": 5},
        errors={"error_env": "EnvError: the browser is gone"},
        repeated=None,
        no_action=None,
        verdicts={"": 40, "equal_rewards": 60},
        train_steps=[{"gap_k1_nats": 0.68, "entropy_nats": 0.3, **masked(0.02, 0.03, 0.01), **LEARNS}] * 20,
        canary_gap_nats=1e-5,
        free_megabytes=10_000,
    )


def rung(facts: Facts) -> list[str]:
    alarms = [alarm for rule in RULES for alarm in rule(facts)]
    assert all(alarm.what and alarm.advice for alarm in alarms)
    return [alarm.kind for alarm in alarms]


def with_modules(facts: Facts, *modules: ModuleStatus, **changed: object) -> Facts:
    return structs.replace(facts, status=structs.replace(facts.status, modules=list(modules), **changed))


def test_a_healthy_run_has_none(healthy):
    assert rung(healthy) == []


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"statuses": {"completed": 90, "error_env": 10}}, "error_env"),
        ({"statuses": {"completed": 10, "error_agent": 20}}, "error_agent"),
        ({"repeated": structs.replace(BROKEN, count=3)}, "same_error"),
        ({"no_action": NoAction(rollouts=100, response="hm", answer="not an action")}, "no_valid_action"),
        ({"statuses": {"completed": 40, "truncated_turns": 60}}, "truncated_turns"),
        ({"verdicts": {"": 4, "equal_rewards": 96}}, "groups_dropped"),
        ({"canary_gap_nats": 0.2}, "gap"),
        (
            {"events": [Event(time=0.0, kind="evaluation_uncounted", fields={"tag": "during/1", "warning": "x"})]},
            "evaluation_uncounted",
        ),
        ({"train_steps": [{"entropy_nats": 0.001}] * 5}, "entropy"),
        ({"train_steps": [{"effective_sample_fraction": 0.4, "importance_max": 5.0}] * 5}, "effective_samples"),
        ({"train_steps": [{"effective_sample_fraction": 0.9, "importance_max": 1e3}] * 5}, "importance_tail"),
        ({"train_steps": [{"clip_fraction": 0.4}] * 5}, "clipped"),
        ({"train_steps": [{"zero_credit_group_share": 0.6}] * 5}, "zero_credit"),
        ({"train_steps": [{"gradient_norm": 5.0}] + [{"gradient_norm": 0.4}] * 5}, "gradient_spike"),
        ({"train_steps": [masked(0.2, 0.2, 0.2)] * 5}, "masked"),
        ({"train_steps": [masked(0.06, 0.12, 0.0)] * 5}, "masked"),
        ({"free_megabytes": 300.0}, "disk"),
        ({"events": [Event(time=0.0, kind="policy_refused", fields={"version": 3, "error": "gap"})]}, "policy_refused"),
        ({"events": [Event(time=0.0, kind="recovery_point_damaged", fields=DAMAGED)]}, "went_back"),
        ({"events": [Event(time=0.0, kind="module_died", fields={"module": "env", "last_words": "x"})] * 2}, "died"),
    ],
)
def test_each_fault_raises_one_alarm(healthy, changed, kind):
    assert rung(structs.replace(healthy, **changed)) == [kind]


def test_one_train_step_on_easy_tasks_does_not_show_that_a_policy_hardly_explores(healthy):
    steps = [{"entropy_nats": 0.0001}] + [{"entropy_nats": 0.1}] * 4
    assert rung(structs.replace(healthy, train_steps=steps)) == []
    assert rung(structs.replace(healthy, train_steps=steps[:1] * 4)) == []


@pytest.mark.parametrize(
    ("groups", "replay", "suspect"),
    [
        ([1, 2], "success_pool", "train.learning_rate"),
        ([1], "success_pool", "imported success"),
        ([1], "none", None),
    ],
    ids=["whole_batches", "with_a_pool", "without_a_pool"],
)
def test_the_likely_cause_of_a_quarantine_depends_on_what_failed(healthy, groups, replay, suspect):
    record = {"groups": groups, "of_groups": 2, "error": "the loss is not finite"}
    recipe = bandit_recipe(Path("policy"), replay={"name": replay})
    events = [Event(time=0.0, kind="batch_quarantined", fields=record)]
    (alarm,) = quarantined(structs.replace(healthy, events=events, recipe=recipe))
    assert "not finite" in alarm.what
    suspects = ("train.learning_rate", "imported success")
    assert [one for one in suspects if one in alarm.advice] == ([suspect] if suspect else [])


def test_each_policy_with_a_refused_version_is_named_once_with_the_newest(healthy):
    events = [
        Event(time=9.0 - version, kind="policy_refused", fields={"policy": name, "version": version, "error": "gap"})
        for version, name in ((3, "odd"), (2, "odd"), (1, "even"))
    ]
    alarms = [alarm for rule in RULES for alarm in rule(structs.replace(healthy, events=events))]
    assert {(alarm.about, alarm.what) for alarm in alarms} == {
        (name, f"the engine rejected version {version} of policy {name!r}: gap")
        for name, version in (("even", 1), ("odd", 3))
    }


def test_the_gap_is_that_of_the_canary_and_its_advice_is_not_what_is_set_already(healthy, ledger, tmp_path):
    recorder = Recorder(tmp_path, "engine")
    recorder.metric("engine", loaded_version=1, canary_gap_nats=0.2)
    recorder.close()
    status = StatusReader(tmp_path, ledger, RECIPE).read()
    (alarm,) = read_alarms(tmp_path, ledger, RECIPE, status)
    assert alarm.kind == "gap" and "0.200 nats" in alarm.what and "float32" not in alarm.advice
    reduced = RECIPE.model_copy(update={"engine": RECIPE.engine.model_copy(update={"dtype": "bfloat16"})})
    (alarm,) = read_alarms(tmp_path, ledger, reduced, status)
    assert "engine.dtype = 'float32'" in alarm.advice


def test_few_rollouts_are_not_judged(healthy):
    facts = structs.replace(healthy, statuses={"error_env": 3}, verdicts={"equal_rewards": 3}, repeated=BROKEN)
    assert rung(facts) == []


def test_the_newest_error_is_in_the_alarm_about_its_status(healthy):
    facts = structs.replace(healthy, statuses={"completed": 90, "error_env": 10})
    (alarm,) = [alarm for rule in RULES for alarm in rule(facts)]
    assert "the newest with: EnvError: the browser is gone" in alarm.what


def test_an_alarm_is_announced_once_when_raised_and_once_when_over():
    disk = Alarm(kind="disk", what="300 MB are free", advice="free some")
    env, worker = (
        Alarm(kind="died", about=name, what=f"{name} died", advice="see its log") for name in ("env", "worker")
    )
    announced = Announced()
    assert list(announced.lines([disk])) == ["alarm: 300 MB are free -> free some"]
    fuller = structs.replace(disk, what="299 MB are free")
    assert list(announced.lines([fuller, env])) == ["alarm: env died -> see its log"]
    assert list(announced.lines([fuller, worker])) == ["alarm: worker died -> see its log", "alarm cleared: env died"]
    assert list(announced.lines([structs.replace(fuller, level=2)])) == [
        "alarm: 299 MB are free -> free some",
        "alarm cleared: worker died",
    ]
    assert list(announced.lines([])) == ["alarm cleared: 299 MB are free"]


def test_an_error_that_an_alarm_or_another_error_quotes_keeps_its_advice_in_the_sentence():
    quoted = f"env died twice: {ConfigError('port 80 is in use', 'choose another one')}"
    alarm = Alarm(kind="died", about="env", what=quoted, advice="see its log")
    sentence = "env died twice: port 80 is in use; choose another one"
    assert list(Announced().lines([alarm])) == [f"alarm: {sentence} -> see its log"]
    assert str(ConfigError(quoted, "see its log")) == f"{sentence}\n  -> see its log"
    assert str(ConfigError(quoted)) == quoted


def test_a_run_that_ends_before_the_next_line_still_prints_what_killed_it(ledger, tmp_path, capsys):
    with LiveDisplay(StatusReader(tmp_path, ledger, RECIPE)) as display:
        display.tick()
        ledger.event("module_died", module="env", code=1, last_words="boom")
        display.tick()  # too early for another line
    assert "alarm: env died once in ten minutes: boom" in capsys.readouterr().err
    with LiveDisplay(StatusReader(tmp_path, ledger, RECIPE), quiet=True):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["clip_fraction", "zero_credit_group_share", "gradient_norm", "importance_max"])
def test_few_train_steps_and_metrics_that_were_not_finite_raise_no_alarm(healthy, name):
    for steps in ([{name: 1e3}] * 4, [{name: 1e3}] + [{name: None}] * 19, [{}] * 20):
        assert rung(structs.replace(healthy, train_steps=steps)) == []


def test_the_tail_of_importance_is_judged_and_reported_by_the_median(healthy):
    def with_ratios(*ratios: float) -> Facts:
        return structs.replace(healthy, train_steps=[{"importance_max": ratio} for ratio in ratios])

    assert rung(with_ratios(1e6, 2.0, 3.0, 1e6, 4.0)) == []
    (alarm,) = [alarm for rule in RULES for alarm in rule(with_ratios(4.0, 321.0, 1e6, 1e6, 3.0))]
    assert "321 times" in alarm.what


def test_few_train_steps_say_little_about_masking(healthy):
    assert rung(structs.replace(healthy, train_steps=[masked(0.9, 0.9, 0.9)] * 4)) == []


def test_a_silent_module_and_a_starving_trainer(healthy):
    assert rung(with_modules(healthy, module("worker", silent_seconds=30.0))) == ["silent"]
    assert rung(with_modules(healthy, module("trainer", waiting_for="2 trainable groups", since_seconds=200.0))) == [
        "starving"
    ]
    assert rung(with_modules(healthy, module("trainer", waiting_for="2 trainable groups", since_seconds=20.0))) == []


def test_no_starvation_alarm_after_training(healthy):
    """What the trainer said last stays in its row while the last evaluation runs."""
    told = module("trainer", waiting_for="2 trainable groups", since_seconds=200.0, silent_seconds=76.0)
    assert rung(with_modules(healthy, told, phase="evaluating after 10")) == []


def test_a_trainer_that_is_held_back_is_not_starving(healthy):
    """With `admission.on_late` "wait" it has a batch, and no limit on that wait ends the run."""
    waiting_for = "unfinished groups that the next policy would make too old"
    assert rung(with_modules(healthy, module("trainer", waiting_for=waiting_for, since_seconds=900.0))) == []


@pytest.mark.parametrize(
    ("reason", "setting", "other"),
    [
        ("equal_rewards", "control.sampler", "filter"),
        ("overlong", "filters.overlong.max_response_tokens", "too easy"),
        ("broken", "filters.broken.max_error_share", "too easy"),
        ("over_lag", "admission.max_lag", "too easy"),
        ("damaged", "quartet ledger check", "too easy"),
        ("a_filter_of_ones_own", "filters", "too easy"),
    ],
)
def test_advice_depends_on_the_drop_reason(healthy, reason, setting, other):
    facts = structs.replace(healthy, verdicts={reason: 100})
    (alarm,) = [alarm for rule in RULES for alarm in rule(facts)]
    assert reason in alarm.what and setting in alarm.advice and other not in alarm.advice


def test_the_trainer_is_not_missed_while_a_policy_is_evaluated(healthy):
    gone = module("trainer", silent_seconds=500.0)
    assert rung(with_modules(healthy, gone, phase="evaluating after 10")) == []
    assert rung(with_modules(healthy, gone)) == ["silent"]


def test_modules_that_are_not_expected_raise_no_alarm(ledger, tmp_path):
    """An engine and a sink of a former start, and a sink that was given up."""
    recipe = bandit_recipe(Path("policy"), observe={"sinks": ["tensorboard", "prometheus"]})
    late = Ledger.open(tmp_path, clock=lambda: time.time() - 100)
    for name in ("engine", "engine-2", "sink-wandb", "sink-tensorboard", "sink-prometheus"):
        Presence(late.modules, name)
    late.close()
    ledger.set_value(GIVEN_UP, ["sink-tensorboard"])
    status = StatusReader(tmp_path, ledger, recipe).read()
    silent = [alarm.what.split()[0] for alarm in read_alarms(tmp_path, ledger, recipe, status)]
    assert silent == ["engine", "sink-prometheus"]
    assert {one.module for one in status.modules if status.absence(one) not in ("", NOT_STARTED)} == {
        "engine-2",
        "sink-wandb",
        "sink-tensorboard",
    }


def test_a_sink_at_work_is_never_taken_for_silent():
    assert BEAT_SECONDS + POLL_SECONDS < SILENT_AFTER_SECONDS


def test_facts_come_from_the_newest_rows(ledger, tmp_path):
    task = Task(env="bandit", family="fixed", seed=1)
    ledger.groups.admit(RolloutPlan(task=task, num_rollouts=2, max_turns=1))
    for lease in ledger.rollouts.claim("w", 2, 60):
        ledger.trajectories.append(lease, trajectory(task, reward=1.0), 3)
    assert recent_statuses(ledger, 1) == {"completed": 1}
    assert recent_statuses(ledger, 9) == {"completed": 2}
    assert recent_verdicts(ledger, 9) == {}
    (group_id,) = ledger.groups.closable(180.0)
    ledger.groups.close(group_id)
    ledger.groups.drop(group_id, "equal_rewards")
    assert recent_verdicts(ledger, 9) == {"equal_rewards": 1}
    assert newest_train_metrics(ledger, 20) == []
    ledger.event("module_died", module="env", code=1, last_words="out of memory")
    Presence(ledger.modules, "worker")
    alarms = read_alarms(tmp_path, ledger, RECIPE, StatusReader(tmp_path, ledger, RECIPE).read())
    assert [(alarm.kind, "out of memory" in alarm.what) for alarm in alarms] == [("died", True)]


def test_progress_is_towards_the_limit_that_comes_first(ledger):
    ledger.set_value("training_seconds", 50.0)
    by_time = run_progress(RECIPE, ledger, TRAINING)
    assert by_time is not None and (by_time.share, by_time.seconds_left) == (0.5, 50.0)
    assert "train.max_seconds" in by_time.what
    for step in range(1, 9):
        trainable_group(ledger)
        batch = ledger.batches.claim("t", 1, 100, "mask", 60)
        assert batch is not None
        ledger.batches.commit(batch, f"policies/v{step}", {})
    by_steps = run_progress(RECIPE, ledger, TRAINING)
    assert by_steps is not None and by_steps.share == 0.8 and by_steps.seconds_left == pytest.approx(12.5)
    limits = {"max_train_steps": 10, "max_seconds": 100.0, "max_rollouts": 18}
    by_rollouts = run_progress(bandit_recipe(Path("policy"), train=limits), ledger, TRAINING)
    assert by_rollouts is not None and by_rollouts.what == "16 of 18 rollouts (train.max_rollouts)"
    assert run_progress(RECIPE, ledger, "not started") is None


def test_progress_begins_with_the_time(ledger):
    far = bandit_recipe(Path("policy"), train={"max_train_steps": 100_000, "max_seconds": 3600.0})
    progress = run_progress(far, ledger, TRAINING)
    assert progress is not None and progress.what == "0 of 3,600 s (train.max_seconds)"
    endless = bandit_recipe(Path("policy"), train={"max_train_steps": 100_000, "max_seconds": math.inf})
    progress = run_progress(endless, ledger, TRAINING)
    assert progress is not None and (progress.what, progress.seconds_left) == (
        "0 of 100,000 train steps (train.max_train_steps)",
        None,
    )


def test_progress_of_an_evaluation_counts_its_episodes(ledger):
    tasks = [Task(env="bandit", family="fixed", seed=seed) for seed in range(4)]
    plans = [
        RolloutPlan(task=task, num_rollouts=1, max_turns=1, purpose=Purpose.EVAL, tag="before/greedy") for task in tasks
    ]
    assert run_progress(RECIPE, ledger, "evaluating before") is None
    ledger.evaluations.admit("before/greedy", plans)
    lease = ledger.rollouts.claim("w", 1, 60)[0]
    ledger.trajectories.append(lease, trajectory(lease.task, reward=1.0), 3)
    progress = run_progress(RECIPE, ledger, "evaluating before")
    assert progress is not None and (progress.share, progress.what) == (0.25, "1 of 4 episodes")
