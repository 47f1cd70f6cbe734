"""Devices of a scenario: engines with their routing, processors of environments, servers of rewards."""

from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.engine import VirtualEngine
from benchmarks.virtual.routing.affinity import Affinity
from benchmarks.virtual.routing.base import Routing
from benchmarks.virtual.routing.least_requests import LeastRequests
from benchmarks.virtual.scenario import Scenario
from benchmarks.virtual.station import Station
from quartet.forecast.engine_cost import engine_cost


class Fleet:
    """All devices but the trainer's."""

    def __init__(self, clock: VirtualClock, scenario: Scenario) -> None:
        self.engines: list[VirtualEngine] = []
        for group in scenario.engines:
            costs = {
                family: engine_cost(group.gpu, group.gpus_per_engine, scenario.model, kind.workload)
                for family, kind in scenario.kinds.items()
            }
            for _ in range(group.count):
                name = "engine" if not self.engines else f"engine-{len(self.engines) + 1}"
                self.engines.append(VirtualEngine(clock, name, costs))
        self.routing: Routing = Affinity() if scenario.affinity else LeastRequests()
        self.processors = Station(clock, scenario.environment_processors)
        self.rewards = Station(clock, scenario.reward_servers)
