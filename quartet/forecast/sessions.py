"""Closed queueing network of sessions and engines: a rollout is either in its environment or in an engine.

Of n running rollouts, b per engine wait for a response of T(b) seconds and the others are in their environment, Z
seconds per turn. By Little's law each engine answers b / T(b) turns per second, so with E engines

    n = E b (1 + Z / T(b)).

The right-hand side increases with b, and its root is the steady state without random fluctuations, an upper bound of
the rate. An engine with less than one request on average computes each of them alone, in T(1). So the rate of few
sessions is n / (T(1) + Z), and in saturation each engine answers slots / T(slots).
"""

import math

from quartet.forecast.engine_cost import EngineCost
from quartet.forecast.workload import Workload


def turns_per_second(running: float, engines: int, cost: EngineCost, workload: Workload) -> float:
    """Return the turns per second of `running` rollouts on `engines` equal engines."""
    batch = batch_of(running, engines, cost, workload)
    return engines * batch / cost.turn_seconds(max(batch, 1.0))


def batch_of(running: float, engines: int, cost: EngineCost, workload: Workload) -> float:
    """Return the mean number of requests that each engine computes, at most its slots."""
    per_engine, think = running / engines, workload.think_seconds
    alone = per_engine / (1 + think / cost.turn_seconds(1.0))
    if alone <= 1:
        return alone
    # T is the larger of two lines; a larger T needs a larger b for the same n.
    batch = max(_root(per_engine, think, start, slope) for start, slope in cost.turn_lines)
    return min(batch, float(cost.slots))


def _root(per_engine: float, think: float, start: float, slope: float) -> float:
    """Return b with `per_engine` = b (1 + think / T(b)) for T(b) = start + slope b: the positive root of
    slope b² + linear b - per_engine start. Of its two forms, the one without cancellation is used."""
    linear = start + think - per_engine * slope
    both = abs(linear) + math.sqrt(linear**2 + 4 * slope * per_engine * start)
    return 2 * per_engine * start / both if linear > 0 else both / (2 * slope)
