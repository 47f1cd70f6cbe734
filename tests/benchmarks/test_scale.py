"""The simulator: engines against closed forms, totals against the real ledger, Little's law, and more devices."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.published import april, dart, large, redundancy, rollart
from benchmarks.virtual.check import check
from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.engine import VirtualEngine
from benchmarks.virtual.figures import Figures, figures, simulate
from benchmarks.virtual.fleet import Fleet
from benchmarks.virtual.rollout import Sampled, VirtualRollout
from benchmarks.virtual.routing.least_requests import LeastRequests
from benchmarks.virtual.scenario import Away, Engines, Kind, Scenario, Spread
from benchmarks.virtual.simulation import Simulation
from benchmarks.virtual.station import Station
from quartet.forecast.engine_cost import EngineCost
from quartet.forecast.gpus import GPUS
from quartet.forecast.model_size import ModelSize
from quartet.forecast.sessions import turns_per_second
from quartet.forecast.trainer_cost import Trainer
from quartet.forecast.workload import Workload
from quartet.types import Purpose, RolloutLease, RolloutState, Task

COST = EngineCost(
    weights_seconds=0.01, cache_seconds=0.001, product_seconds=1e-6, prefill_seconds=0.5, response_tokens=100, slots=4
)
WORKLOAD = Workload(
    turns=4,
    prompt_tokens_per_turn=1000,
    response_tokens_per_turn=200,
    context_tokens=4000,
    step_seconds=20.0,
    reset_seconds=40.0,
)


def scenario(*, engines: int = 1, sessions: int = 8, spread: Spread = Spread(), **changes) -> Scenario:  # noqa: B008
    made = Scenario(
        kinds={"task": Kind(workload=WORKLOAD, spread=spread, max_turns=8)},
        model=ModelSize(parameters=8e9, kv_bytes_per_token=1e5),
        engines=[Engines(count=engines, gpu=GPUS["H100"], gpus_per_engine=1)],
        trainer=Trainer(kind=GPUS["H100"], trainer_efficiency=0.4, passes=4),
        trainer_gpus=64,
        sessions=sessions,
        recipe={
            "admission": {"max_lag": 4, "group_deadline_seconds": 1e6},
            "control": {"sampler": "uniform", "rollouts_per_group": 4},
            "train": {"groups_per_batch": 2},
        },
        load_seconds=0.01,
    )
    return replace(made, **changes)


def served(engine: VirtualEngine, clock: VirtualClock, tokens: list[int]) -> list[float]:
    """The time at which each request ends; all begin at once."""
    ends: list[float] = []
    began = clock.now
    for count in tokens:
        engine.generate("task", count, lambda: ends.append(clock.now - began))
    clock.run(lambda: len(ends) == len(tokens))
    return ends


def test_one_request_takes_its_prompt_and_its_tokens():
    clock = VirtualClock()
    engine = VirtualEngine(clock, "engine", {"task": COST})
    assert served(engine, clock, [100]) == pytest.approx([0.5 + 100 * 0.011])
    assert engine.busy_seconds == pytest.approx(0.5 + 100 * 0.011)


def test_requests_share_the_weights_and_a_short_one_leaves_early():
    clock = VirtualClock()
    both = 50 * (0.01 + 2 * 0.001 + 0.5 / 50 + 0.5 / 100)
    alone = 50 * (0.01 + 0.001 + 0.5 / 100)
    ends = served(VirtualEngine(clock, "engine", {"task": COST}), clock, [100, 50])
    assert ends == pytest.approx([both, both + alone])


def test_requests_beyond_the_slots_wait():
    clock = VirtualClock()
    full = 100 * (0.01 + 4 * 0.001) + 4 * 0.5
    ends = served(VirtualEngine(clock, "engine", {"task": COST}), clock, [100] * 6)
    assert ends[:4] == pytest.approx([full] * 4)
    assert ends[4:] == pytest.approx([full + 100 * (0.01 + 2 * 0.001) + 2 * 0.5] * 2)


def test_a_load_stops_the_engine_and_keeps_its_requests():
    clock = VirtualClock()
    engine = VirtualEngine(clock, "engine", {"task": COST})
    clock.after(0.7, lambda: engine.load(1, 10.0, lambda: None))
    assert served(engine, clock, [100]) == pytest.approx([0.5 + 100 * 0.011 + 10.0])
    assert engine.versions == {"main": 1}
    assert engine.busy_seconds == pytest.approx(0.5 + 100 * 0.011)


def test_an_aborted_request_leaves_its_place_to_the_others():
    clock = VirtualClock()
    engine = VirtualEngine(clock, "engine", {"task": COST})
    aborted = engine.generate("task", 100, lambda: pytest.fail("it was aborted"))
    engine.abort(aborted)
    assert engine.requests == 0
    assert served(engine, clock, [100]) == pytest.approx([0.5 + 100 * 0.011])


def test_a_continued_response_computes_only_the_rest_and_its_prompt_again():
    clock = VirtualClock()
    engine = VirtualEngine(clock, "engine", {"task": COST})
    request = engine.generate("task", 100, lambda: pytest.fail("it was aborted"))
    clock.after(0.76, lambda: None)  # half of the response, with half of its prefill's time
    clock.run(lambda: clock.now > 1.7)
    before = engine.abort(request)
    assert before == pytest.approx(0.76 / (0.5 / 100 + 0.011), abs=1)
    ended = list[float]()
    began = clock.now
    engine.generate("task", 100 - before, lambda: ended.append(clock.now - began), sampled_before=before)
    clock.run(lambda: bool(ended))
    assert ended == pytest.approx([0.5 + before * 1e-6 + (100 - before) * 0.011])


def test_an_engine_that_leaves_loses_its_requests_and_gets_no_others():
    clock = VirtualClock()
    engines = [VirtualEngine(clock, name, {"task": COST}) for name in ("engine", "engine-2")]
    lost = list[int]()
    for number in range(6):  # two of them wait
        engines[0].generate("task", 100, lambda: pytest.fail("it was lost"), lambda number=number: lost.append(number))
    engines[0].leave()
    assert sorted(lost) == list(range(6))
    assert engines[0].requests == 0
    assert LeastRequests().pick("task", engines) is engines[1]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 200)), min_size=1, max_size=20))
def test_no_request_is_lost_or_faster_than_alone(requests):
    clock = VirtualClock()
    engine = VirtualEngine(clock, "engine", {"task": COST})
    spent: list[tuple[float, int]] = []

    def begin(tokens: int) -> None:
        began = clock.now
        engine.generate("task", tokens, lambda: spent.append((clock.now - began, tokens)))

    for at, tokens in requests:
        clock.after(at, lambda tokens=tokens: begin(tokens))
    clock.run(lambda: len(spent) == len(requests))
    engine.count_time()
    assert all(seconds >= (0.5 + tokens * 0.011) * (1 - 1e-9) for seconds, tokens in spent)
    assert engine.request_seconds == pytest.approx(sum(seconds for seconds, _ in spent))
    assert engine.requests == 0


def test_long_requests_take_more_of_the_memory():
    """Memory for four short requests or two long ones: two long ones leave no room for a short one."""
    clock = VirtualClock()
    engine = VirtualEngine(clock, "engine", {"short": COST, "long": replace(COST, slots=2)})
    order = list[str]()
    for kind, tokens in (("long", 100), ("long", 50), ("short", 10)):
        engine.generate(kind, tokens, lambda kind=kind: order.append(kind))
    clock.run(lambda: len(order) == 3)
    assert order == ["long", "short", "long"]


def test_a_station_with_two_servers_takes_the_jobs_in_their_order():
    clock = VirtualClock()
    station, ends = Station(clock, 2), list[float]()
    for _ in range(3):
        station.serve(5.0, lambda: ends.append(clock.now - 1.0))
    clock.run(lambda: len(ends) == 3)
    assert ends == [5.0, 5.0, 10.0]


def test_affinity_sends_long_prompts_to_the_gpu_that_computes_fast():
    fleet = Fleet(VirtualClock(), rollart.scenario(rollart.Assumed(), "rollout_wise", (1, 1), affinity=True))
    h800, h20 = fleet.engines
    assert fleet.routing.pick("agentic", fleet.engines) is h800
    assert fleet.routing.pick("reasoning", fleet.engines) is h20


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A run of three train steps, and the moment of its first."""
    simulation = Simulation(
        scenario(spread=Spread(turns=0.5, response=0.5, step=0.5)), tmp_path_factory.mktemp("scale") / "run"
    )
    first = simulation.run(lambda: simulation.train_steps == 1)
    last = simulation.run(lambda: simulation.train_steps == 3)
    yield simulation, first, last
    simulation.close()


def test_the_ledger_confirms_every_rollout(simulated):
    simulation, _, last = simulated
    sizes = simulation.ledger.statistics.queue_sizes()
    queued = simulation.ledger.rollouts.queued_for_training()
    unfinished = sizes.rollouts[RolloutState.QUEUED] + sizes.rollouts[RolloutState.LEASED]
    assert simulation.ledger.rollouts.ended_in_training() == last.finished
    assert queued == last.finished + unfinished
    assert last.trained_rollouts == 3 * 2 * 4
    assert simulation.ledger.batches.train_step() == 3


def test_littles_law_holds_for_sessions(simulated):
    """Mean number of occupied sessions x time = number of rollouts x their mean duration."""
    simulation, first, last = simulated
    assert last.occupied_seconds == pytest.approx(simulation.sessions.rollout_seconds)
    found = figures(simulation.scenario, first, last, 0.0, 0.0)
    assert 0 < found.environment_busy <= found.environment_utilisation <= 1
    assert 0 < found.engine_utilisation <= 1


@pytest.mark.slow
def test_one_session_and_one_engine_are_the_closed_form(tmp_path):
    """A rollout takes its reset, four turns, and at most a tick until the next one is claimed."""
    one = scenario(sessions=1)
    one = replace(one, recipe=one.recipe | {"train": {"groups_per_batch": 1}})
    cost = Fleet(VirtualClock(), one).engines[0].costs["task"]
    rollout_seconds = 40.0 + 4 * (cost.turn_seconds(1) + 20.0)
    found = simulate(one, warm_steps=1, train_steps=2, folder=tmp_path)
    assert 3600 / found.rollouts_per_hour == pytest.approx(rollout_seconds + one.tick_seconds, rel=0.01)


@pytest.mark.slow
@pytest.mark.campaign
def test_the_forecast_agrees_with_the_simulator(tmp_path):
    many = scenario(sessions=48)
    many = replace(many, recipe=many.recipe | {"train": {"groups_per_batch": 12}})
    found = simulate(many, warm_steps=2, train_steps=4, folder=tmp_path)
    cost = Fleet(VirtualClock(), many).engines[0].costs["task"]
    expected = turns_per_second(48, 1, cost, WORKLOAD) / WORKLOAD.turns
    assert found.rollouts_per_hour / 3600 == pytest.approx(expected, rel=0.1)


def test_leases_follow_virtual_time(tmp_path):
    """A step longer than the lease: the rollout is requeued after the lease's virtual seconds, and cancelled in the
    end, while hardly any real time passes."""
    slow = scenario()
    slow = replace(slow, recipe=slow.recipe | {"rollout": {"lease_seconds": 10.0, "max_attempts": 2}})
    simulation = Simulation(slow, tmp_path / "run")
    simulation.run(lambda: simulation.clock.now > 300)
    kinds = {event.kind for event in simulation.ledger.events(1000)}
    simulation.close()
    assert {"lease_expired", "rollout_out_of_attempts"} <= kinds


def two_policies() -> Scenario:
    """Two policies that take turns; half of the engines and sessions leave for a minute in every three."""
    half = Engines(count=1, gpu=GPUS["H100"], gpus_per_engine=1)
    away = replace(half, away=Away(period_seconds=180.0, away_seconds=60.0), sessions=4, latency_seconds=0.5)
    both = scenario(policies=("solver", "reviewer"), engines=0, spread=Spread(turns=0.5, response=0.5, step=0.5))
    return replace(
        both, engines=[half, away], recipe=both.recipe | {"rollout": {"lease_seconds": 60.0, "max_attempts": 10}}
    )


def test_leases_of_services_that_leave_expire_and_no_rollout_is_trained_twice(tmp_path):
    simulation = Simulation(two_policies(), tmp_path / "run")
    simulation.run(lambda: simulation.train_steps >= 3 and bool(simulation.sessions.left))
    check(simulation)
    kinds = {event.kind for event in simulation.ledger.events(1000)}
    ends = [trainer.train_steps for trainer in simulation.trainers]
    simulation.close()
    assert "lease_expired" in kinds
    assert min(ends) >= 3


def test_a_lease_without_a_session_is_found(tmp_path):
    simulation = Simulation(two_policies(), tmp_path / "run")
    simulation.run(lambda: simulation.ledger.rollouts.count_queued(1) > 0)
    check(simulation)
    assert simulation.ledger.rollouts.claim("forgotten", 1, 1e9)
    with pytest.raises(AssertionError, match="are leased, but sessions hold"):
        check(simulation)
    simulation.close()


def test_a_lease_that_outlives_its_session_is_found(tmp_path):
    """As if leases did not expire: the session left long ago, and the rollout is still leased."""
    simulation = Simulation(two_policies(), tmp_path / "run")
    simulation.run(lambda: len(simulation.sessions.leases) > 0)
    simulation.sessions.leave(1)
    check(simulation)
    simulation.clock.now += 1000
    with pytest.raises(AssertionError, match="still leased by sessions that left"):
        check(simulation)
    simulation.close()


def test_a_lost_call_is_asked_again_with_the_same_length():
    """The engine of the first call leaves; the other one generates as many tokens in each call."""
    one = scenario(engines=2, spread=Spread(turns=0.5, response=0.5, step=0.5))
    lease = RolloutLease(
        rollout_id=1,
        group_id=1,
        attempt=1,
        index=0,
        task=Task(env="bandit", family="task", seed=1),
        max_turns=8,
        sampling_seed=7,
        temperature=1.0,
        purpose=Purpose.TRAIN,
        deadline=1e9,
    )

    def tokens(*, lost: bool) -> list[int]:
        clock, ended = VirtualClock(), list[VirtualRollout]()
        fleet = Fleet(clock, one)
        rollout = VirtualRollout(clock, fleet, one.kinds["task"], lease, lambda _: None, ended.append, Sampled())
        clock.run(lambda: fleet.engines[0].requests == 1)
        if lost:
            fleet.engines[0].leave()
        clock.run(lambda: bool(ended))
        return rollout.sampled.tokens

    assert tokens(lost=True) == tokens(lost=False)


def test_a_frozen_policy_has_no_trainer(tmp_path):
    alone = replace(two_policies(), frozen=("reviewer",))
    simulation = Simulation(alone, tmp_path / "run")
    simulation.run(lambda: simulation.train_steps == 1)
    simulation.close()
    assert len(simulation.trainers) == 1


def test_an_environment_that_hangs_fails_and_its_rollout_is_retried(tmp_path):
    hanging = scenario()
    kind = replace(hanging.kinds["task"], hang_share=0.3, hang_seconds=300.0)
    hanging = replace(hanging, kinds={"task": kind}, recipe=hanging.recipe | {"straggler": {"name": "redundancy"}})
    simulation = Simulation(hanging, tmp_path / "run")
    totals = simulation.run(lambda: simulation.train_steps == 2)
    kinds = {event.kind for event in simulation.ledger.events(1000)}
    simulation.close()
    assert "rollout_retried" in kinds
    assert totals.superseded > 0  # rollouts beyond those that the group needs


def test_recycled_responses_shorten_the_train_step_and_have_a_lag(tmp_path):
    """At reduced size: APRIL's batches do not wait for their longest response."""
    made = [april.scenario(april.Assumed(), recycles=recycles) for recycles in (False, True)]
    small = [replace(one, sessions=64, recipe=one.recipe | {"train": {"groups_per_batch": 4}}) for one in made]
    plain, recycled = (simulate(one, warm_steps=1, train_steps=3, folder=tmp_path) for one in small)
    assert recycled.train_step_period_seconds < plain.train_step_period_seconds
    assert recycled.mean_lag > 0 == plain.mean_lag


def test_without_extra_rollouts_no_straggler_policy_is_set_and_only_agentic_tasks_hang():
    made = redundancy.scenario(redundancy.Assumed(), 0)
    assert "straggler" not in made.recipe
    assert made.kinds["reasoning"].hang_share == 0 < made.kinds["agentic"].hang_share


def run_small(engines: int, sessions: int, folder: Path) -> Figures:
    varied = scenario(engines=engines, sessions=sessions, spread=Spread(turns=0.5, response=0.5, step=0.5))
    return simulate(varied, warm_steps=1, train_steps=3, folder=folder)


@pytest.mark.campaign
@pytest.mark.parametrize("sessions", [4, 8, 16])
def test_more_devices_never_reduce_the_simulated_throughput(sessions, tmp_path):
    base = run_small(1, sessions, tmp_path).rollouts_per_hour
    assert run_small(2, sessions, tmp_path).rollouts_per_hour >= 0.97 * base
    assert run_small(1, 2 * sessions, tmp_path).rollouts_per_hour >= 0.97 * base


@pytest.mark.campaign
def test_decoupling_helps_with_the_published_settings():
    """At reduced length: all ratios of DART are well above 1."""
    part = dart.Main()

    def figures(assumed: dart.Assumed, system: str) -> Figures:
        return simulate(part.scenario(assumed, system), warm_steps=1, train_steps=3)

    assumed = part.prepared(part.assumed, figures)
    found = part.outcomes(assumed, {system: figures(assumed, system) for system in part.systems})
    assert all(found[ratio].simulated > 1.2 for ratio in dart.RATIOS)


def test_the_large_cluster_lets_every_environment_work():
    made = large.scenario(large.Main.assumed, 1000, 10_000)
    groups, lag = made.recipe["train"]["groups_per_batch"], made.recipe["admission"]["max_lag"]
    assert (lag + 1) * groups * 8 >= 1.5 * 10_000
    assert sum(group.count for group in made.engines) == 1000
