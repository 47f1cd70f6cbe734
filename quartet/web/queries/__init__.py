"""What the pages ask of a run's ledger: plain functions on a read-only connection. None reads the whole run."""
