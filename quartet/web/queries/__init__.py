"""Database queries of the pages: functions on a read-only connection to a run's ledger."""
