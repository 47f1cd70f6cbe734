"""Forecast of a run's throughput on given devices: cost model, closed queueing network, best split; `docs/plan.md`."""
