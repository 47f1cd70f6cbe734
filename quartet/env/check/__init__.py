"""Check of environments: sessions served by a host as in a run, and agents that need no policy."""
