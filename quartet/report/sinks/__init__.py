"""Sinks: destinations of a run's records besides its folder. Each follows the run's files in its own process.

A slow, faulty or missing sink does not affect the run. It is restarted a few times and then given up, which is logged
and recorded as an event in the ledger.
"""
