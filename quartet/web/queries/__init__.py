"""Queries of the pages: plain functions on a read-only connection of a run's ledger. None reads the whole run."""
