"""Sinks: where a run is shown besides its own folder. Each follows the run's files, in a process of its own.

A sink can be slow, wrong or missing without the run noticing: it is started again a few times and then given up, which
the log and the ledger's events tell.
"""
