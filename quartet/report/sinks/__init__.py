"""Sinks: destinations of a run's records besides its folder. Each sink follows the run's files in its own process.

A slow, faulty or missing sink does not affect the run. The supervisor restarts a failed sink a few times. Then it stops
restarting the sink, logs this, and records it as an event in the ledger.
"""
