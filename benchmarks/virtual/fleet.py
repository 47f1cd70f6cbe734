"""Devices of a scenario: engines with their routing, processors of environments, servers of rewards."""

from msgspec.structs import replace

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.engine import VirtualEngine
from benchmarks.virtual.routing.affinity import Affinity
from benchmarks.virtual.routing.base import Routing
from benchmarks.virtual.routing.least_requests import LeastRequests
from benchmarks.virtual.scenario import Engines, Kind, Scenario
from benchmarks.virtual.station import Station
from quartet.forecast.engine_cost import EngineCost, engine_cost


class Fleet:
    """All devices but the trainer's."""

    def __init__(self, clock: VirtualClock, scenario: Scenario) -> None:
        self.engines: list[VirtualEngine] = []
        self.groups: dict[VirtualEngine, Engines] = {}
        for group in scenario.engines:
            costs = {family: _cost(group, scenario, kind) for family, kind in scenario.kinds.items()}
            for _ in range(group.count):
                name = "engine" if not self.engines else f"engine-{len(self.engines) + 1}"
                engine = VirtualEngine(clock, name, costs, scenario.policies, group.latency_seconds)
                self.engines.append(engine)
                self.groups[engine] = group
        self.policies = scenario.policies
        self.routing: Routing = Affinity() if scenario.affinity else LeastRequests()
        self.processors = Station(clock, scenario.environment_processors)
        self.rewards = Station(clock, scenario.reward_servers)

    def of(self, group: Engines) -> list[VirtualEngine]:
        """Return the engines of a group of the scenario."""
        return [engine for engine, its in self.groups.items() if its is group]


def _cost(group: Engines, scenario: Scenario, kind: Kind) -> EngineCost:
    """Return the cost of an engine; every iteration reads the weights of all policies."""
    cost = engine_cost(group.gpu, group.gpus_per_engine, scenario.model, kind.workload)
    return replace(cost, weights_seconds=len(scenario.policies) * cost.weights_seconds)
