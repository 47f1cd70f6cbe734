"""The forecast against closed forms: one session, saturation, Little's law, operations of a train step, and weights."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from safetensors import safe_open

from benchmarks.bandit import bandit_recipe
from quartet.errors import ConfigError
from quartet.forecast.engine_cost import EngineCost, engine_cost, fewest_gpus
from quartet.forecast.gpus import GPUS
from quartet.forecast.model_size import ModelSize, read_model_size
from quartet.forecast.of_recipe import Inputs, run_of
from quartet.forecast.sessions import batch_of, turns_per_second
from quartet.forecast.split import ENOUGH, NEARLY, best_split, enough_gpus, limit, splits
from quartet.forecast.throughput import Run, rates
from quartet.forecast.trainer_cost import Trainer, passes_of
from quartet.forecast.workload import Workload
from quartet.shipped import shipped_policies

WORKLOAD = Workload(
    turns=10,
    prompt_tokens_per_turn=1000,
    response_tokens_per_turn=100,
    context_tokens=4000,
    step_seconds=3.0,
    reset_seconds=30.0,
)
COST = EngineCost(
    weights_seconds=0.01,
    cache_seconds=0.001,
    product_seconds=1e-5,
    prefill_seconds=0.1,
    response_tokens=100,
    slots=50,
)
MODEL = ModelSize(parameters=8e9, kv_bytes_per_token=1e5)
RUN = Run(
    model=MODEL,
    workload=WORKLOAD,
    engine=COST,
    trainer=Trainer(kind=GPUS["H100"], trainer_efficiency=0.4, passes=3),
    sessions=100,
    rollouts_per_batch=64,
    rollouts_ahead=10_000,
    kept_share=1.0,
    schedule="rollout_wise",
    load_seconds=0.001,
)


def test_one_session_waits_for_nothing():
    alone = 100 * (0.01 + 0.001) + 0.1
    assert turns_per_second(1, 1, COST, WORKLOAD) == pytest.approx(1 / (alone + 3 + 30 / 10))


def test_saturated_engines_answer_as_many_turns_as_fit():
    assert turns_per_second(1e6, 4, COST, WORKLOAD) == pytest.approx(4 * 50 / (100 * (0.01 + 50 * 0.001) + 50 * 0.1))


@given(st.floats(1, 300), st.integers(1, 8))
def test_littles_law(running, engines):
    """Rollouts = rate x (time in the engine + time in the environment), unless some wait for a slot."""
    batch = batch_of(running, engines, COST, WORKLOAD)
    turn_seconds = COST.turn_seconds(max(batch, 1)) + WORKLOAD.think_seconds
    rate = turns_per_second(running, engines, COST, WORKLOAD)
    if batch < COST.slots:
        assert rate * turn_seconds == pytest.approx(running)
    else:
        assert rate * turn_seconds <= running * (1 + 1e-9)


def test_a_train_step_takes_six_operations_per_parameter_and_token():
    trainer = Trainer(kind=GPUS["A100"], trainer_efficiency=0.5, passes=3)
    assert trainer.step_seconds(8, MODEL, 1e6) == pytest.approx(6 * 8e9 * 1e6 / (8 * 312e12 * 0.5))
    assert passes_of(optimizer_epochs=1, activation_checkpointing=False, further=0) == 3
    assert passes_of(optimizer_epochs=2, activation_checkpointing=True, further=2) == 10


@pytest.mark.parametrize(
    ("sections", "passes", "frozen"),
    [
        ({}, 3, 0),
        ({"train": {"minibatches": 4}}, 3.75, 0),
        ({"train": {"epochs": 2, "minibatches": 4}}, 7, 0),
        ({"train": {"activation_checkpointing": True}, "loss": {"terms": ["ppo_clip", "kl"]}}, 5, 1),
        ({"loss": {"terms": ["ppo_clip", "value"]}, "credit": {"name": "gae"}}, 4, 0),
    ],
)
def test_passes_and_frozen_policies_are_those_of_the_recipe(bandit_policy, sections, passes, frozen):
    means = {"step_seconds": 1.0, "reset_seconds": 1.0, "load_seconds": 1.0, "kept_share": 1.0}
    inputs = Inputs(gpus=8, desktops=64, gpu="H100", trainer_efficiency=0.4, **means)
    trainer = run_of(bandit_recipe(bandit_policy, **sections), inputs, 32)[0].trainer
    assert (trainer.passes, trainer.frozen_policies) == (passes, frozen)


@pytest.mark.parametrize("policy", shipped_policies().values(), ids=shipped_policies())
def test_the_size_is_that_of_the_weights(policy):
    """Without those of a vision tower, which forecasts leave out."""
    values = 0
    for file in policy.glob("*.safetensors"):
        with safe_open(file, "numpy") as weights:
            for name in [name for name in weights.keys() if ".visual." not in name]:  # noqa: SIM118
                count = 1
                for length in weights.get_slice(name).get_shape():
                    count *= length
                values += count
    assert read_model_size(policy).parameters == pytest.approx(values, rel=0.02)


def test_a_mixture_of_experts_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"num_experts": 8, "hidden_size": 8, "num_hidden_layers": 1}')
    with pytest.raises(ConfigError, match="lacks num_attention_heads"):
        read_model_size(tmp_path)


def test_a_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="is not there"):
        read_model_size(tmp_path / "model")


def test_weights_must_leave_room_for_a_request():
    large = ModelSize(parameters=70e9, kv_bytes_per_token=3e5)
    with pytest.raises(ConfigError, match="no memory for a request"):
        engine_cost(GPUS["H100"], 1, large, WORKLOAD)
    assert fewest_gpus(GPUS["H100"], large) == 4
    assert fewest_gpus(GPUS["H200"], MODEL) == 1


def test_decoding_reads_the_weights_once_for_all_requests():
    cost = engine_cost(GPUS["H100"], 1, MODEL, WORKLOAD)
    assert cost.weights_seconds == pytest.approx(16e9 / (0.7 * 3.35e12))
    assert cost.turn_seconds(8) < 8 * cost.turn_seconds(1)


def test_the_limit_is_the_scarce_resource():
    fast = replace(RUN.trainer, kind=replace(RUN.trainer.kind, flops_per_second=1e20))
    assert limit(replace(RUN, sessions=2), best_split(replace(RUN, sessions=2), 64, 1))[0] == "desktops"
    assert limit(replace(RUN, rollouts_ahead=66), best_split(replace(RUN, rollouts_ahead=66), 64, 1))[0] == "admission"
    few = replace(RUN, sessions=10_000, rollouts_ahead=1e6, trainer=fast)
    assert limit(few, best_split(few, 4, 1))[0] == "engines"
    slow = replace(RUN, trainer=replace(RUN.trainer, trainer_efficiency=0.001))
    assert limit(slow, best_split(slow, 4, 1))[0] == "trainer"


def test_ten_percent_more_of_a_busy_trainer_give_ten_percent_more():
    slow = replace(RUN, trainer=replace(RUN.trainer, trainer_efficiency=0.001))
    assert limit(slow, best_split(slow, 4, 1))[1] == pytest.approx(1.1, rel=0.01)


def test_loading_limits_where_engines_load_most_of_the_time():
    loading = replace(RUN, load_seconds=1e6)
    assert limit(loading, best_split(loading, 64, 1))[0] == "loading"


def test_idle_gpus_are_not_added_to_the_engines():
    few = replace(RUN, sessions=2)
    best = best_split(few, 64, 1)
    assert best.engines == 1
    enough = enough_gpus(few, best, 1)
    assert enough < 64
    fewer = best_split(few, enough, 1).rates.rollouts_per_second
    assert fewer >= ENOUGH * NEARLY * best.rates.rollouts_per_second


@given(st.floats(1e-6, 1e6), st.floats(0, 1e6), st.floats(0, 1e3), st.floats(0, 1e3))
def test_the_batch_solves_its_equation(per_engine, think, weights, prefill):
    """n = b (1 + Z / T(b)), with memory for every request."""
    cost = replace(COST, weights_seconds=weights, prefill_seconds=prefill, slots=10**9)
    workload = replace(WORKLOAD, step_seconds=think, reset_seconds=0.0)
    batch = batch_of(per_engine, 1, cost, workload)
    assert batch * (1 + think / cost.turn_seconds(max(batch, 1.0))) == pytest.approx(per_engine)


def test_a_trainer_that_limits_is_always_busy():
    slow = replace(RUN, trainer=replace(RUN.trainer, trainer_efficiency=0.001))
    found = rates(slow, 2, 2)
    assert found.trainer_utilisation == pytest.approx(1)
    assert found.rollouts_per_second == pytest.approx(64 / found.train_step_seconds)


def test_alternating_adds_the_times_of_generation_and_training():
    run = replace(RUN, schedule="batch_synchronous", rollouts_ahead=64, load_seconds=7.0)
    generation = 64 / (turns_per_second(64, 2, COST, WORKLOAD) / WORKLOAD.turns)
    found = rates(run, 2, 2)
    assert 64 / found.rollouts_per_second == pytest.approx(generation + found.train_step_seconds + 7.0)


def test_one_step_off_takes_the_longer_of_generation_and_training():
    run = replace(RUN, schedule="one_step_off", rollouts_ahead=128, load_seconds=7.0)
    generation = 64 / (turns_per_second(64, 2, COST, WORKLOAD) / WORKLOAD.turns)
    found = rates(run, 2, 2)
    assert generation > found.train_step_seconds
    assert 64 / found.rollouts_per_second == pytest.approx(generation + 7.0)
    slow = replace(run, trainer=replace(RUN.trainer, trainer_efficiency=0.001))
    found = rates(slow, 2, 2)
    assert 64 / found.rollouts_per_second == pytest.approx(found.train_step_seconds + 7.0)


def test_dropped_rollouts_are_generated_but_not_trained():
    slow = replace(RUN, trainer=replace(RUN.trainer, trainer_efficiency=0.001))
    half = rates(replace(slow, kept_share=0.5), 2, 2)
    assert half.rollouts_per_second == pytest.approx(2 * rates(slow, 2, 2).rollouts_per_second)


@settings(max_examples=25)
@given(
    st.integers(3, 12),
    st.integers(1, 400),
    st.integers(128, 2000),
    st.sampled_from(["rollout_wise", "batch_synchronous", "one_step_off"]),
    st.sampled_from([1, 2, 4]),
)
def test_more_devices_never_reduce_the_throughput(gpus, desktops, ahead, schedule, gpus_per_engine):
    run = replace(RUN, sessions=desktops, rollouts_ahead=ahead, schedule=schedule)
    gpus += gpus_per_engine
    least = best_split(run, gpus, gpus_per_engine).rates.rollouts_per_second * NEARLY
    assert best_split(run, gpus + 1, gpus_per_engine).rates.rollouts_per_second >= least
    more = replace(run, sessions=desktops + 1)
    assert best_split(more, gpus, gpus_per_engine).rates.rollouts_per_second >= least


def test_every_split_uses_all_gpus_and_holds_the_trainers_state():
    for split in splits(RUN, 20, 2):
        assert 2 * split.engines + split.trainer_gpus == 20
        assert split.trainer_gpus >= 16 * 8e9 / (0.7 * 80e9)
    with pytest.raises(ConfigError, match="--gpus 4 or more"):
        best_split(RUN, 2, 1)


def test_rollouts_that_a_slow_trainer_holds_back_do_not_run():
    slow = replace(RUN, trainer=replace(RUN.trainer, trainer_efficiency=0.001), load_seconds=0.0)
    found = rates(slow, 2, 2)
    assert found.running < 100
    assert turns_per_second(found.running, 2, COST, WORKLOAD) / 10 == pytest.approx(found.rollouts_per_second)
